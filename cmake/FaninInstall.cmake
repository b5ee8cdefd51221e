# cmake --install: the library, its headers, the command, the CMake package, the examples.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
if(TARGET fanin_command)
  set_target_properties(fanin_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS fanin_command RUNTIME COMPONENT fanin)
endif()
install(TARGETS fanin EXPORT fanin_targets
  LIBRARY COMPONENT fanin NAMELINK_COMPONENT fanin_dev
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY src/fanin/ "${FANIN_GENERATED_DIR}/fanin/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/fanin"
  COMPONENT fanin_dev FILES_MATCHING PATTERN "*.hpp")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fanin")
install(EXPORT fanin_targets NAMESPACE fanin:: DESTINATION "${package_dir}" COMPONENT fanin_dev)
# What a consumer has to find before it can link: the packages behind PUBLIC_LIBS.
get_property(FANIN_PUBLIC_PACKAGES GLOBAL PROPERTY FANIN_PUBLIC_TARGETS)
list(REMOVE_ITEM FANIN_PUBLIC_PACKAGES Threads::Threads)
list(TRANSFORM FANIN_PUBLIC_PACKAGES REPLACE "::.*" "")
list(REMOVE_DUPLICATES FANIN_PUBLIC_PACKAGES)
configure_package_config_file(cmake/faninConfig.cmake.in "${PROJECT_BINARY_DIR}/faninConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/faninConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/faninConfig.cmake" "${PROJECT_BINARY_DIR}/faninConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT fanin_dev)

install(DIRECTORY examples/ DESTINATION "${CMAKE_INSTALL_DATADIR}/fanin/examples" COMPONENT fanin OPTIONAL)
# As in the source tree, so that links between the documents lead somewhere.
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT fanin FILES_MATCHING PATTERN "*.md")
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CITATION.cff
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT fanin)
