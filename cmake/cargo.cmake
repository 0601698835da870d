# The targets that cargo builds: nrdma::nrdma, nrdma::static and the command.
set(_args build --locked --manifest-path ${PROJECT_SOURCE_DIR}/Cargo.toml)
set(_env ${NRDMA_CARGO_ENV})
set(_profile release)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(_profile debug)
else()
  list(APPEND _args --release)
endif()

set(_triple ${NRDMA_CARGO_TARGET})
if(NRDMA_SANITIZE)
  # Sanitizers are unstable in rustc. With --target they stay out of build scripts and macros.
  list(APPEND _env RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address)
  if(NOT _triple)
    set(_triple ${CMAKE_SYSTEM_PROCESSOR}-unknown-linux-gnu)
  endif()
endif()
set(_sub ${_profile})
if(_triple)
  list(APPEND _args --target ${_triple})
  set(_sub ${_triple}/${_profile})
endif()
separate_arguments(_more UNIX_COMMAND "${NRDMA_CARGO_FLAGS}")

# The library is built without the command's dependencies. Each has a directory of its own, because both
# builds would put their libnrdma.so into the same place.
set(NRDMA_LIBRARY_DIR ${NRDMA_CARGO_DIR}/lib/${_sub})
set(NRDMA_TOOL_FILE ${NRDMA_CARGO_DIR}/tool/${_sub}/nrdma${CMAKE_EXECUTABLE_SUFFIX})
set(_static ${NRDMA_LIBRARY_DIR}/libnrdma.a)
set(_implib)
# The import library of Microsoft's tool chain, beside MinGW's: one DLL is for both.
set(NRDMA_MSVC_IMPLIB)
if(MSVC)
  set(_shared ${NRDMA_LIBRARY_DIR}/nrdma.dll)
  set(_implib ${NRDMA_LIBRARY_DIR}/nrdma.dll.lib)
  set(_static ${NRDMA_LIBRARY_DIR}/nrdma.lib)
elseif(WIN32)
  set(_shared ${NRDMA_LIBRARY_DIR}/nrdma.dll)
  set(_implib ${NRDMA_LIBRARY_DIR}/libnrdma.dll.a)
  find_program(NRDMA_DLLTOOL NAMES llvm-dlltool llvm-dlltool-19 PATHS /usr/lib/llvm-19/bin)
  if(NRDMA_DLLTOOL)
    set(NRDMA_MSVC_IMPLIB ${CMAKE_BINARY_DIR}/nrdma.lib)
  endif()
else()
  set(_shared ${NRDMA_LIBRARY_DIR}/libnrdma.so)
  set(NRDMA_SONAME libnrdma.so.${PROJECT_VERSION_MAJOR})
endif()

# cargo decides what is stale: these run in every build and are quick when nothing changed.
add_custom_target(nrdma_cargo ALL
  COMMAND ${CMAKE_COMMAND} -E env ${_env}
    ${CARGO} ${_args} --target-dir ${NRDMA_CARGO_DIR}/lib --lib --no-default-features --features cuda,vulkan ${_more}
  BYPRODUCTS ${_shared} ${_static} ${_implib}
  USES_TERMINAL VERBATIM)
if(NRDMA_SONAME)
  # Programs of this build tree look for the library under its soname.
  add_custom_command(TARGET nrdma_cargo POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E create_symlink libnrdma.so ${NRDMA_LIBRARY_DIR}/${NRDMA_SONAME})
endif()

if(NRDMA_MSVC_IMPLIB)
  add_custom_command(TARGET nrdma_cargo POST_BUILD
    COMMAND ${CMAKE_COMMAND} -DDLL=${_shared} -DLIB=${NRDMA_MSVC_IMPLIB} -DOBJDUMP=${CMAKE_OBJDUMP}
      -DDLLTOOL=${NRDMA_DLLTOOL} -P ${PROJECT_SOURCE_DIR}/cmake/implib.cmake
    BYPRODUCTS ${NRDMA_MSVC_IMPLIB} VERBATIM)
endif()

# What a neuray host loads: a library of its own, with the one function that hosts ask plugins for.
if(NOT WIN32)
  set(NRDMA_NEURAY_FILE ${NRDMA_CARGO_DIR}/neuray/${_sub}/libnrdma_neuray.so)
  add_custom_target(nrdma_neuray ALL
    COMMAND ${CMAKE_COMMAND} -E env ${_env}
      ${CARGO} ${_args} --target-dir ${NRDMA_CARGO_DIR}/neuray --package nrdma-neuray ${_more}
    BYPRODUCTS ${NRDMA_NEURAY_FILE}
    USES_TERMINAL VERBATIM)
endif()

if(NRDMA_TOOL)
  add_custom_target(nrdma_tool ALL
    COMMAND ${CMAKE_COMMAND} -E env ${_env}
      ${CARGO} ${_args} --target-dir ${NRDMA_CARGO_DIR}/tool --bin nrdma ${_more}
    BYPRODUCTS ${NRDMA_TOOL_FILE}
    USES_TERMINAL VERBATIM)
endif()

# The man page and the completions, by the command itself, where it can be run.
if(NRDMA_TOOL AND NOT _triple AND NOT CMAKE_CROSSCOMPILING)
  set(NRDMA_TOOL_TEXTS ON)
  add_custom_target(nrdma_texts ALL
    COMMAND ${CMAKE_COMMAND} -DTOOL=${NRDMA_TOOL_FILE} -DOUT=${CMAKE_BINARY_DIR}/texts
      -P ${PROJECT_SOURCE_DIR}/cmake/texts.cmake
    DEPENDS nrdma_tool VERBATIM)
  add_dependencies(nrdma_texts nrdma_tool)
endif()

# The bench, for the rig of emulated machines: cargo alone knows what it calls the file.
if(NRDMA_RDMA_RIG AND NRDMA_TOOL AND BUILD_TESTING AND PROJECT_IS_TOP_LEVEL)
  set(NRDMA_BENCH_FILE ${NRDMA_CARGO_DIR}/tool/${_sub}/ratios)
  add_custom_target(nrdma_bench ALL
    COMMAND ${CMAKE_COMMAND} -E env ${_env} sh ${CMAKE_CURRENT_LIST_DIR}/bench.sh ${NRDMA_BENCH_FILE}
      ${CARGO} ${_args} --target-dir ${NRDMA_CARGO_DIR}/tool --bench ratios ${_more}
    BYPRODUCTS ${NRDMA_BENCH_FILE}
    USES_TERMINAL VERBATIM)
  if(TARGET nrdma_tool)
    add_dependencies(nrdma_bench nrdma_tool)
  endif()
endif()

add_library(nrdma SHARED IMPORTED GLOBAL)
add_library(nrdma::nrdma ALIAS nrdma)
add_dependencies(nrdma nrdma_cargo)
target_include_directories(nrdma INTERFACE ${PROJECT_SOURCE_DIR}/include)
set_target_properties(nrdma PROPERTIES IMPORTED_LOCATION ${_shared})
if(WIN32)
  set_target_properties(nrdma PROPERTIES IMPORTED_IMPLIB ${_implib})
else()
  set_target_properties(nrdma PROPERTIES IMPORTED_SONAME ${NRDMA_SONAME})
endif()

# What rustc's --print native-static-libs lists.
if(WIN32)
  set(NRDMA_STATIC_LIBS ntdll userenv ws2_32 iphlpapi)
else()
  set(NRDMA_STATIC_LIBS gcc_s util rt pthread m dl c)
endif()
add_library(nrdma_static STATIC IMPORTED GLOBAL)
add_library(nrdma::static ALIAS nrdma_static)
add_dependencies(nrdma_static nrdma_cargo)
target_include_directories(nrdma_static INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(nrdma_static INTERFACE NRDMA_STATIC)
target_link_libraries(nrdma_static INTERFACE ${NRDMA_STATIC_LIBS})
set_target_properties(nrdma_static PROPERTIES IMPORTED_LOCATION ${_static})
