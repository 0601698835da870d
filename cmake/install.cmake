# The install tree: relocatable, with find_package and pkg-config files.
set(_cmakedir ${CMAKE_INSTALL_LIBDIR}/cmake/nrdma)
if(MSVC)
  install(FILES ${_shared} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  # Under the name that the package files know.
  install(FILES ${_implib} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development RENAME nrdma.lib)
  set(NRDMA_SHARED_PATH ${CMAKE_INSTALL_BINDIR}/nrdma.dll)
elseif(WIN32)
  install(FILES ${_shared} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  install(FILES ${_implib} ${NRDMA_MSVC_IMPLIB} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  set(NRDMA_SHARED_PATH ${CMAKE_INSTALL_BINDIR}/nrdma.dll)
else()
  set(_full libnrdma.so.${PROJECT_VERSION})
  set(_links ${CMAKE_BINARY_DIR}/links)
  file(MAKE_DIRECTORY ${_links})
  file(CREATE_LINK ${_full} ${_links}/${NRDMA_SONAME} SYMBOLIC)
  file(CREATE_LINK ${NRDMA_SONAME} ${_links}/libnrdma.so SYMBOLIC)
  install(PROGRAMS ${_shared} DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME ${_full} COMPONENT runtime)
  install(FILES ${_links}/${NRDMA_SONAME} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
  install(FILES ${_links}/libnrdma.so ${_static} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  set(NRDMA_SHARED_PATH ${CMAKE_INSTALL_LIBDIR}/${_full})
  # In a folder of its own: hosts load every library of a plugin folder.
  install(PROGRAMS ${NRDMA_NEURAY_FILE} DESTINATION ${CMAKE_INSTALL_LIBDIR}/nrdma COMPONENT runtime)
endif()
if(NRDMA_TOOL)
  install(PROGRAMS ${NRDMA_TOOL_FILE} DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tool)
  if(NRDMA_TOOL_TEXTS)
    set(_texts ${CMAKE_BINARY_DIR}/texts)
    install(FILES ${_texts}/nrdma.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
    install(FILES ${_texts}/nrdma.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME nrdma
      COMPONENT tool)
    install(FILES ${_texts}/_nrdma DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tool)
    install(FILES ${_texts}/nrdma.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tool)
  endif()
endif()
install(DIRECTORY include/nrdma DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES LICENSE-APACHE LICENSE-MIT DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# install(EXPORT) does not take imported targets, so the config file is written by hand.
configure_package_config_file(cmake/nrdmaConfig.cmake.in ${CMAKE_BINARY_DIR}/nrdmaConfig.cmake
  INSTALL_DESTINATION ${_cmakedir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR NRDMA_SHARED_PATH)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/nrdmaConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/nrdmaConfig.cmake ${CMAKE_BINARY_DIR}/nrdmaConfigVersion.cmake
  DESTINATION ${_cmakedir} COMPONENT development)

# From the .pc file up to the prefix: lib/<triple> is one level deeper than lib.
file(RELATIVE_PATH NRDMA_PC_UP /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
string(REGEX REPLACE "/$" "" NRDMA_PC_UP "${NRDMA_PC_UP}")
list(TRANSFORM NRDMA_STATIC_LIBS PREPEND "-l" OUTPUT_VARIABLE NRDMA_PC_PRIVATE)
string(REPLACE ";" " " NRDMA_PC_PRIVATE "${NRDMA_PC_PRIVATE}")
configure_file(cmake/nrdma.pc.in ${CMAKE_BINARY_DIR}/nrdma.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/nrdma.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
