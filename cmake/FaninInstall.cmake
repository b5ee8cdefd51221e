# cmake --install: the two libraries with their headers and CMake packages, the command, the examples, the documents.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
if(TARGET fanin_command)
  set_target_properties(fanin_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
  install(TARGETS fanin_command RUNTIME COMPONENT fanin)
endif()
set_target_properties(fanin PROPERTIES INSTALL_RPATH "$ORIGIN")

# A library in a package of its own: components NAME and NAME_dev, fanin::net and fanin::fanin.
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fanin")
set_target_properties(fanin_net PROPERTIES EXPORT_NAME net)
foreach(library fanin_net fanin)
  install(TARGETS ${library} EXPORT ${library}_targets
    LIBRARY COMPONENT ${library} NAMELINK_COMPONENT ${library}_dev
    ARCHIVE COMPONENT ${library}_dev
    FILE_SET HEADERS COMPONENT ${library}_dev)
  install(EXPORT ${library}_targets NAMESPACE fanin:: DESTINATION "${package_dir}" COMPONENT ${library}_dev)
endforeach()
# A static library's users link what it needs.
set(FANIN_STATIC_DEPENDENCIES "")
set(FANIN_STATIC_DEPENDENCIES_OF_FANIN "")
if(NOT BUILD_SHARED_LIBS)
  set(FANIN_STATIC_DEPENDENCIES "find_dependency(PkgConfig)\n")
  foreach(dependency "ISAL libisal" "NUMA numa" "OFI libfabric" "VERBS libibverbs librdmacm")
    string(REGEX MATCH "^[A-Z]+" name "${dependency}")
    string(REGEX REPLACE "^[A-Z]+ " "" packages "${dependency}")
    if(${name}_FOUND)
      string(APPEND FANIN_STATIC_DEPENDENCIES "pkg_check_modules(${name} REQUIRED IMPORTED_TARGET ${packages})\n")
    endif()
  endforeach()
  set(FANIN_STATIC_DEPENDENCIES_OF_FANIN "  enable_language(C) # FindHDF5 compiles with it\n  find_dependency(HDF5 COMPONENTS C)\n")
endif()
configure_package_config_file(cmake/faninConfig.cmake.in "${PROJECT_BINARY_DIR}/faninConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/faninConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/faninConfig.cmake" "${PROJECT_BINARY_DIR}/faninConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT fanin_net_dev)

install(DIRECTORY examples/ DESTINATION "${CMAKE_INSTALL_DATADIR}/fanin/examples" COMPONENT fanin OPTIONAL
  USE_SOURCE_PERMISSIONS)
# As in the source tree, so that links between the documents lead somewhere.
install(DIRECTORY docs DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT fanin FILES_MATCHING PATTERN "*.md")
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md CITATION.cff
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT fanin)
