# Strangers' projects: against the installed tree, then against the same tree moved elsewhere.
set(_stage ${CMAKE_BINARY_DIR}/stage)
set(_moved ${CMAKE_BINARY_DIR}/moved)
find_program(NRDMA_PKG_CONFIG pkg-config)

nrdma_check(package.install package ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_BINARY_DIR}/stage.cmake)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/stage.cmake
  "file(REMOVE_RECURSE ${_stage} ${_moved} ${CMAKE_BINARY_DIR}/consumer)\n"
  "execute_process(COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${_stage} COMMAND_ERROR_IS_FATAL ANY)\n")
set_tests_properties(package.install PROPERTIES FIXTURES_SETUP stage)
nrdma_check(package.tree package sh ${_checks}/tree.sh ${_stage} ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR} ${PROJECT_VERSION})
nrdma_check(package.move package ${CMAKE_COMMAND} -E rename ${_stage} ${_moved})
set_tests_properties(package.tree package.move PROPERTIES FIXTURES_REQUIRED stage)
set_tests_properties(package.move PROPERTIES FIXTURES_SETUP moved)

# As a part of a stranger's build. What cargo built is shared, so that it is not built again.
foreach(how add_subdirectory FetchContent)
  set(_fetch OFF)
  if(how STREQUAL "FetchContent")
    set(_fetch ON)
  endif()
  nrdma_check(package.${how} package ${CMAKE_CTEST_COMMAND}
    --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/consumer/subdirectory ${CMAKE_BINARY_DIR}/consumer/${how}
    --build-generator ${CMAKE_GENERATOR} --build-noclean
    --build-options -DNRDMA_SOURCE=${PROJECT_SOURCE_DIR} -DNRDMA_FETCH=${_fetch} -DNRDMA_TOOL=OFF
      -DNRDMA_CARGO_DIR=${NRDMA_CARGO_DIR} -DNRDMA_CARGO_FLAGS=${NRDMA_CARGO_FLAGS} -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
      -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    --test-command consumer)
  set_tests_properties(package.${how} PROPERTIES TIMEOUT 600 RUN_SERIAL TRUE)
endforeach()

foreach(place stage moved)
  set(_prefix ${_${place}})
  set(_consumers)
  foreach(language c cxx)
    foreach(kind nrdma static)
      set(_name package.${place}.find_package.${language}.${kind})
      nrdma_check(${_name} package ${CMAKE_CTEST_COMMAND}
        --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/consumer/${language}
          ${CMAKE_BINARY_DIR}/consumer/${place}.${language}.${kind}
        --build-generator ${CMAKE_GENERATOR} --build-noclean
        --build-options -DCMAKE_PREFIX_PATH=${_prefix} -DNRDMA_KIND=${kind}
          -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
        --test-command consumer)
      list(APPEND _consumers ${_name})
    endforeach()
    if(NRDMA_PKG_CONFIG)
      set(_compiler ${CMAKE_C_COMPILER})
      set(_source c/main.c)
      if(language STREQUAL "cxx")
        set(_compiler ${CMAKE_CXX_COMPILER})
        set(_source cxx/main.cpp)
      endif()
      foreach(kind shared static)
        set(_name package.${place}.pkg_config.${language}.${kind})
        nrdma_check(${_name} package sh ${_checks}/pkg_config.sh ${_prefix}/${CMAKE_INSTALL_LIBDIR} ${kind} ${_compiler}
          ${CMAKE_CURRENT_SOURCE_DIR}/consumer/${_source} ${CMAKE_BINARY_DIR}/consumer/${place}.pc.${language}.${kind})
        list(APPEND _consumers ${_name})
      endforeach()
    endif()
  endforeach()
  # A C host gets no C++ runtime from us, neither by linking nor through the library.
  set(_name package.${place}.no_cxx_runtime)
  nrdma_check(${_name} package sh ${_checks}/no_cxx_runtime.sh ${CMAKE_BINARY_DIR}/consumer/${place}.c.nrdma/consumer
    ${CMAKE_BINARY_DIR}/consumer/${place}.c.static/consumer)
  set_tests_properties(${_name} PROPERTIES
    DEPENDS "package.${place}.find_package.c.nrdma;package.${place}.find_package.c.static")
  list(APPEND _consumers ${_name})
  set_tests_properties(${_consumers} PROPERTIES FIXTURES_REQUIRED ${place})
  if(place STREQUAL "stage")
    set_tests_properties(package.move PROPERTIES DEPENDS "package.tree;${_consumers}")
  endif()
endforeach()
