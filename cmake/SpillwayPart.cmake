# One part of the architecture = one library target = one folder in include/spillway/ and in src/, or in
# framework/include/spillway/ and in framework/.

# Which package gives a target that parts link. The installed package looks for it when the part is asked for.
set(SPILLWAY_PACKAGE_OF_Threads::Threads Threads)
set(SPILLWAY_PACKAGE_OF_CLI11::CLI11 CLI11)
set(SPILLWAY_PACKAGE_OF_nlohmann_json::nlohmann_json nlohmann_json)
set(SPILLWAY_PACKAGE_OF_tomlplusplus::tomlplusplus tomlplusplus)
set(SPILLWAY_PACKAGE_OF_MPI::MPI_CXX MPI)
set(SPILLWAY_PACKAGE_OF_spillway::libtorch SpillwayTorch)
set(SPILLWAY_PACKAGE_OF_spillway::cudart SpillwayTorch)
set(SPILLWAY_PACKAGE_OF_spillway::nccl SpillwayTorch)

# spillway_add_part(<part> [SOURCES <file>...] [PUBLIC_DEPS <target>...] [PRIVATE_DEPS <target>...])
#
# Makes the static library spillway_<part>, its alias spillway::<part> and its install rules. Dependencies are
# targets: parts (spillway::core) or those of the table above. Without SOURCES the part is headers only.
function(spillway_add_part part)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC_DEPS;PRIVATE_DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "spillway_add_part(${part}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()

  set(target spillway_${part})
  # Parts of framework/ have their headers in framework/include and may include internal ones from framework/.
  set(top "${PROJECT_SOURCE_DIR}")
  set(internal "${PROJECT_SOURCE_DIR}/src")
  set(framework "${PROJECT_SOURCE_DIR}/framework")
  cmake_path(IS_PREFIX framework "${CMAKE_CURRENT_SOURCE_DIR}" in_framework)
  if(in_framework)
    set(top "${framework}")
    set(internal "${framework}")
  endif()
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    target_include_directories(${target} PRIVATE "${internal}")
    target_link_libraries(${target}
      PUBLIC ${arg_PUBLIC_DEPS}
      PRIVATE ${arg_PRIVATE_DEPS} $<BUILD_INTERFACE:spillway_warnings>)
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_PUBLIC_DEPS} ${arg_PRIVATE_DEPS})
    set(scope INTERFACE)
  endif()
  add_library(spillway::${part} ALIAS ${target})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${top}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${part})

  # One export file a part: a user of spillway::core never needs what spillway::torch needs.
  install(TARGETS ${target} EXPORT spillway-${part} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT spillway-${part} NAMESPACE spillway::
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/spillway)
  if(EXISTS "${top}/include/spillway/${part}")
    install(DIRECTORY "${top}/include/spillway/${part}"
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/spillway FILES_MATCHING PATTERN "*.hpp")
  endif()

  set(parts)
  set(packages)
  foreach(dep IN LISTS arg_PUBLIC_DEPS arg_PRIVATE_DEPS)
    string(REGEX REPLACE "^spillway::" "" dep_part "${dep}")
    if(DEFINED SPILLWAY_PACKAGE_OF_${dep})
      list(APPEND packages ${SPILLWAY_PACKAGE_OF_${dep}})
    elseif(dep MATCHES "^spillway::" AND TARGET spillway_${dep_part})
      list(APPEND parts ${dep_part})
      get_property(packages_of_part GLOBAL PROPERTY SPILLWAY_PACKAGES_OF_PART_${dep_part})
      list(APPEND packages ${packages_of_part})
    else()
      message(FATAL_ERROR "spillway_add_part(${part}): ${dep} is no part that was added before, nor in the table "
        "of cmake/SpillwayPart.cmake that says which package gives it")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES packages)
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_PARTS ${part})
  set_property(GLOBAL PROPERTY SPILLWAY_PACKAGES_OF_PART_${part} ${packages})
  set_property(GLOBAL APPEND_STRING PROPERTY SPILLWAY_PARTS_TABLE
    "set(spillway_${part}_PARTS \"${parts}\")\nset(spillway_${part}_PACKAGES \"${packages}\")\n")
endfunction()

# spillway_add_program(<name> SOURCES <file>... [DEPS <target>...]): a program of ours, in build/<preset>/bin.
function(spillway_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "spillway_add_program(${name}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPS} spillway_warnings)
endfunction()

# The last lines of a configuration say what will be built and what will not.
function(spillway_print_parts)
  get_property(parts GLOBAL PROPERTY SPILLWAY_PARTS)
  list(JOIN parts " " text)
  message(STATUS "Parts: ${text}")
  if(SPILLWAY_TORCH STREQUAL "OFF")
    message(STATUS "torch: off (SPILLWAY_TORCH=OFF)")
  elseif(NOT SpillwayTorch_FOUND)
    message(STATUS "torch: not found, so what needs it is left out; scripts/setup.sh installs it")
  elseif(NOT TARGET spillway::cudart)
    message(STATUS "torch: ${SpillwayTorch_VERSION}, a CPU-only build, so spillway::cuda is left out")
  else()
    message(STATUS "torch: ${SpillwayTorch_VERSION} from ${SpillwayTorch_DIRECTORY}")
  endif()
endfunction()
