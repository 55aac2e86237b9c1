# How everything of Spillway is compiled and linked: language, warnings, sanitizers, compiler cache, linker.
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON) # the parts also go into the Python binding
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON) # an installed program finds the wheel's libraries

# Linked as $<BUILD_INTERFACE:spillway_warnings> by the functions of ours, so that users of Spillway never see it.
# Headers of other libraries come from imported targets, which CMake treats as system headers: no warnings from those.
add_library(spillway_warnings INTERFACE)
target_compile_options(spillway_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual
  -Wold-style-cast -Wcast-qual -Wcast-align -Wformat=2 -Wextra-semi -Wundef -Wunused
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond;-Wduplicated-branches;-Wlogical-op>
  $<$<BOOL:${SPILLWAY_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Wrong on `"text" + std::string` with optimisation: gcc.gnu.org/bugzilla/show_bug.cgi?id=105651.
  target_compile_options(spillway_warnings INTERFACE 
    -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()

if(SPILLWAY_SANITIZE)
  add_compile_options(-fsanitize=${SPILLWAY_SANITIZE} -fno-sanitize-recover=all)
  if(SPILLWAY_SANITIZE STREQUAL "address,undefined")
    # AddressSanitizer ends a program at a null pointer or a wrong object, too; these checks take a third of the compile
    # time.
    add_compile_options(-fno-sanitize=null,object-size,vptr)
  endif()
  add_link_options(-fsanitize=${SPILLWAY_SANITIZE})
endif()

# Headers of torch and of the standard library take most of the time, so several sources share one reading of them.
if(SPILLWAY_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
  # A class in a source may hold what is in that source's anonymous namespace; g++ takes the source for a header.
  target_compile_options(spillway_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()

# One cache for all build folders: neither the folder nor the path to it is part of what the cache looks for. So the
# Python package takes what the release build compiled.
find_program(SPILLWAY_CCACHE ccache)
if(SPILLWAY_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    CCACHE_NOHASHDIR=1 "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
    "${SPILLWAY_CCACHE}")
endif()

foreach(linker IN ITEMS mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} SPILLWAY_HAS_${linker})
  if(SPILLWAY_HAS_${linker})
    add_link_options(-fuse-ld=${linker})
    break()
  endif()
endforeach()
