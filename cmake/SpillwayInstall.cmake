# The package file behind find_package(spillway). The parts' own install rules are in SpillwayPart.cmake.
include(CMakePackageConfigHelpers)

set(_destination ${CMAKE_INSTALL_LIBDIR}/cmake/spillway)
get_property(SPILLWAY_PARTS GLOBAL PROPERTY SPILLWAY_PARTS)
get_property(SPILLWAY_PARTS_TABLE GLOBAL PROPERTY SPILLWAY_PARTS_TABLE)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/spillwayConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/spillwayConfig.cmake" INSTALL_DESTINATION ${_destination})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/spillwayConfig.cmake"
  "${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake"
  cmake/FindSpillwayTorch.cmake
  cmake/SpillwayPython.cmake
  DESTINATION ${_destination})
