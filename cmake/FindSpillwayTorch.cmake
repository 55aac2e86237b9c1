# LibTorch, the CUDA runtime and NCCL from the torch wheel of a Python environment. No CUDA toolkit is needed or used;
# torch's own find_package(Torch) is not used, because it asks for one.
#
# Targets
#   spillway::libtorch   headers and libraries; of a CUDA build also the CUDA runtime
#   spillway::cudart     the CUDA runtime; only if torch is a CUDA build
#   spillway::nccl       NCCL; only if torch is a CUDA build and has it
# Variables: SpillwayTorch_FOUND, SpillwayTorch_VERSION, SpillwayTorch_CUDA (its CUDA version, or empty),
#   SpillwayTorch_DIRECTORY. Which Python is asked: see SpillwayPython.cmake. Set SpillwayTorch_ROOT to torch's folder
#   to ask none.
include(FindPackageHandleStandardArgs)
include("${CMAKE_CURRENT_LIST_DIR}/SpillwayPython.cmake")

# Makes the imported target <name> of the shared library <library> and the include folders <ARGN>.
function(_spillway_import_wheel_library name library)
  if(NOT TARGET ${name})
    add_library(${name} SHARED IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES
      IMPORTED_LOCATION "${library}" INTERFACE_INCLUDE_DIRECTORIES "${ARGN}")
  endif()
endfunction()

set(_directory "${SpillwayTorch_ROOT}")
set(_reason "")
if(NOT _directory)
  spillway_locate_python_package(torch _directory _reason)
endif()

set(SpillwayTorch_DIRECTORY "")
set(SpillwayTorch_CUDA "")
if(_directory AND NOT EXISTS "${_directory}/version.py")
  set(_reason "${_directory}/version.py is not there: the torch in that folder is damaged or not installed from a wheel.")
elseif(_directory)
  file(STRINGS "${_directory}/version.py" _lines REGEX "^(__version__|cuda)[ :=]")
  foreach(_line IN LISTS _lines)
    if(_line MATCHES "^__version__.*'([0-9.]+)")
      set(SpillwayTorch_VERSION "${CMAKE_MATCH_1}")
    elseif(_line MATCHES "^cuda.*= *'([0-9.]+)'")
      set(SpillwayTorch_CUDA "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  # A changed torch configures again.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_directory}/version.py")

  set(_libraries c10 torch_cpu torch)
  if(EXISTS "${_directory}/lib/libtorch_cuda.so")
    list(APPEND _libraries c10_cuda torch_cuda)
  else()
    set(SpillwayTorch_CUDA "")
  endif()
  set(SpillwayTorch_DIRECTORY "${_directory}")
  foreach(_library IN LISTS _libraries)
    if(NOT EXISTS "${_directory}/lib/lib${_library}.so")
      set(_reason "${_directory}/lib/lib${_library}.so is not there: the torch in that folder is incomplete.")
      set(SpillwayTorch_DIRECTORY "")
    endif()
  endforeach()
endif()

if(SpillwayTorch_DIRECTORY AND SpillwayTorch_CUDA)
  # The packages of CUDA 13 share one folder, nvidia/cu13; those of CUDA 12 have one each, such as nvidia/cuda_runtime.
  get_filename_component(_nvidia "${SpillwayTorch_DIRECTORY}" DIRECTORY)
  string(APPEND _nvidia "/nvidia")
  string(REGEX MATCH "^[0-9]+" _major "${SpillwayTorch_CUDA}")
  file(GLOB _includes LIST_DIRECTORIES true "${_nvidia}/cu${_major}/include" "${_nvidia}/cu[a-z]*/include")
  file(GLOB _cudart "${_nvidia}/cu${_major}/lib/libcudart.so.*" "${_nvidia}/cuda_runtime/lib/libcudart.so.*")

  # The runtime's headers include some of packages that torch does not bring. Without this check, a build on a machine
  # that happens to have a CUDA toolkit would quietly take the toolkit's.
  set(_missing "")
  foreach(_header IN ITEMS cuda_runtime_api.h crt/host_defines.h nv/target)
    find_file(_found ${_header} PATHS ${_includes} NO_DEFAULT_PATH NO_CACHE)
    if(NOT _found)
      string(APPEND _missing " ${_header}")
    endif()
    unset(_found)
  endforeach()
  if(NOT _cudart)
    string(APPEND _missing " libcudart.so.${_major}")
  endif()

  if(_missing)
    string(CONCAT _reason "torch ${SpillwayTorch_VERSION} is a build for CUDA ${SpillwayTorch_CUDA}, but these files are "
      "not below ${_nvidia}:${_missing}. Run scripts/setup.sh, or install the Python packages nvidia-cuda-runtime, "
      "nvidia-cuda-crt and nvidia-cuda-cccl of CUDA ${SpillwayTorch_CUDA}.")
    set(SpillwayTorch_DIRECTORY "")
  else()
    list(GET _cudart 0 _cudart)
    _spillway_import_wheel_library(spillway::cudart "${_cudart}" ${_includes})
    if(EXISTS "${_nvidia}/nccl/include/nccl.h" AND EXISTS "${_nvidia}/nccl/lib/libnccl.so.2")
      _spillway_import_wheel_library(spillway::nccl "${_nvidia}/nccl/lib/libnccl.so.2" "${_nvidia}/nccl/include")
      target_link_libraries(spillway::nccl INTERFACE spillway::cudart) # nccl.h includes cuda_runtime.h
    endif()
  endif()
endif()

find_package_handle_standard_args(SpillwayTorch
  REQUIRED_VARS SpillwayTorch_DIRECTORY VERSION_VAR SpillwayTorch_VERSION
  REASON_FAILURE_MESSAGE "${_reason}")

if(SpillwayTorch_FOUND AND NOT TARGET spillway::libtorch)
  set(_includes
    "${SpillwayTorch_DIRECTORY}/include" "${SpillwayTorch_DIRECTORY}/include/torch/csrc/api/include")
  add_library(spillway::libtorch INTERFACE IMPORTED GLOBAL)
  foreach(_library IN LISTS _libraries)
    _spillway_import_wheel_library(
      spillway_wheel::${_library} "${SpillwayTorch_DIRECTORY}/lib/lib${_library}.so" ${_includes})
    target_link_libraries(spillway::libtorch INTERFACE spillway_wheel::${_library})
  endforeach()
  if(TARGET spillway::cudart)
    target_link_libraries(spillway::libtorch INTERFACE spillway::cudart)
  endif()
  # torch_cuda registers its kernels when it is loaded; nothing refers to it, so it must not be dropped as unneeded.
  target_link_options(spillway::libtorch INTERFACE "LINKER:--no-as-needed")
  # std::string must be the one the wheel was built with, which shows in the names of its functions.
  file(STRINGS "${SpillwayTorch_DIRECTORY}/lib/libc10.so" _new_abi REGEX "7__cxx1112basic_string" LIMIT_COUNT 1)
  if(_new_abi)
    target_compile_definitions(spillway::libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
  else()
    target_compile_definitions(spillway::libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
  endif()
endif()
