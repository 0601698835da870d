# nrdma.dll under wine: label `windows`. One DLL; its hosts are built by MinGW's GCC, by clang for MinGW's ABI, and by clang
# for Microsoft's ABI without an SDK.
set(_windows ${CMAKE_CURRENT_SOURCE_DIR}/windows)
set(_bin ${CMAKE_CURRENT_BINARY_DIR}/bin)
set(_import ${NRDMA_LIBRARY_DIR}/libnrdma.dll.a)
set(_wine_prefix ${CMAKE_BINARY_DIR}/wine)
find_program(NRDMA_CLANGXX_19 NAMES clang++-19 REQUIRED)
find_program(NRDMA_CLANG_19 NAMES clang-19 REQUIRED)
find_program(NRDMA_WINESERVER NAMES wineserver64 wineserver PATHS /usr/lib/wine REQUIRED)
if(NOT NRDMA_WINE OR NOT NRDMA_DLLTOOL)
  message(FATAL_ERROR "the tests need wine64 and llvm-dlltool")
endif()
file(MAKE_DIRECTORY ${_bin})

# ---- what stands beside every program ----

# wine lacks it, Windows does not.
add_library(bcryptprimitives SHARED windows/shims/bcryptprimitives.c)
target_link_libraries(bcryptprimitives PRIVATE advapi32)
set_target_properties(bcryptprimitives PROPERTIES PREFIX "" RUNTIME_OUTPUT_DIRECTORY ${_bin})
add_custom_target(windows_dll ALL
  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${NRDMA_LIBRARY_DIR}/nrdma.dll ${_bin}/nrdma.dll
  DEPENDS nrdma_cargo VERBATIM)

# ---- runs ----

function(nrdma_wine name)
  add_test(NAME windows.${name} COMMAND ${ARGN})
  set_tests_properties(windows.${name} PROPERTIES LABELS windows TIMEOUT 240 FIXTURES_REQUIRED wine
    ENVIRONMENT "WINEPREFIX=${_wine_prefix};WINEDEBUG=-all;NRDMA_RUNNER=${NRDMA_WINE}")
endfunction()

add_test(NAME windows.prefix COMMAND ${NRDMA_WINE} wineboot --init)
set_tests_properties(windows.prefix PROPERTIES LABELS windows TIMEOUT 240 FIXTURES_SETUP wine
  ENVIRONMENT "WINEPREFIX=${_wine_prefix};WINEDEBUG=-all")
# It fails when all have ended already.
add_test(NAME windows.prefix_end COMMAND sh -c "${NRDMA_WINESERVER} -k || :")
set_tests_properties(windows.prefix_end PROPERTIES LABELS windows TIMEOUT 60 FIXTURES_CLEANUP wine
  ENVIRONMENT "WINEPREFIX=${_wine_prefix}")

# ---- builds: each of them for several compilers ----

# The SDK has an enumerator that Microsoft's int cannot hold.
set(_flags -O1 -g ${NRDMA_WARNINGS} -Wno-microsoft-enum-value -I${_include} -I${CMAKE_CURRENT_SOURCE_DIR})
set(_gnu ${NRDMA_CLANGXX_19} --target=x86_64-w64-windows-gnu)
set(_msvc --target=x86_64-pc-windows-msvc -ffreestanding -fno-builtin -fno-exceptions -fno-threadsafe-statics
  -mno-stack-arg-probe)
set(_msvc_libs)
foreach(library kernel32 msvcrt vcruntime140)
  add_custom_command(OUTPUT ${_bin}/${library}.lib
    COMMAND ${NRDMA_DLLTOOL} -m i386:x86-64 -d ${_windows}/msvc/${library}.def -l ${_bin}/${library}.lib
    DEPENDS ${_windows}/msvc/${library}.def VERBATIM)
  list(APPEND _msvc_libs ${_bin}/${library}.lib)
endforeach()
file(GLOB _sources CONFIGURE_DEPENDS ${_windows}/*.* ${_windows}/msvc/* ${_include}/nrdma/* ${CMAKE_CURRENT_SOURCE_DIR}/*.h)

# nrdma_build(FILE SOURCES ... COMMAND compiler and flags DEPENDS files to link LINK more to link)
function(nrdma_build file)
  cmake_parse_arguments(T "" "" "SOURCES;COMMAND;DEPENDS;LINK" ${ARGN})
  list(TRANSFORM T_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_custom_command(OUTPUT ${_bin}/${file}
    COMMAND ${T_COMMAND} ${T_SOURCES} -o ${_bin}/${file} ${T_DEPENDS} ${T_LINK}
    DEPENDS ${T_SOURCES} ${T_DEPENDS} ${_sources} nrdma_cargo
    COMMENT "Building ${file}" VERBATIM)
  set_property(GLOBAL APPEND PROPERTY NRDMA_WINDOWS_FILES ${_bin}/${file})
endfunction()

# The checks of all that C++ sees.
foreach(kind exe dll)
  set(_how -DSUITE_MAIN)
  set(_how_msvc -DSUITE_MAIN -Wl,/entry:start,/subsystem:console)
  if(kind STREQUAL "dll")
    set(_how -shared)
    set(_how_msvc -Wl,/dll,/noentry)
  endif()
  nrdma_build(suite_mingw.${kind} SOURCES windows/suite.cpp
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++17 ${_flags} -static ${_how} DEPENDS ${_import})
  nrdma_build(suite_clang_gnu.${kind} SOURCES windows/suite.cpp
    COMMAND ${_gnu} -std=c++17 ${_flags} -static -fuse-ld=lld ${_how} DEPENDS ${_import})
  nrdma_build(suite_clang_msvc.${kind} SOURCES windows/suite.cpp
    COMMAND ${NRDMA_CLANGXX_19} ${_msvc} -std=c++17 -fuse-ld=lld -nostdlib -nostdinc++ -isystem ${_windows}/msvc ${_flags}
      ${_how_msvc}
    DEPENDS ${NRDMA_MSVC_IMPLIB} ${_msvc_libs})
endforeach()
foreach(compiler mingw clang_gnu clang_msvc)
  nrdma_wine(suite.${compiler} ${NRDMA_WINE} ${_bin}/suite_${compiler}.exe)
endforeach()

nrdma_build(both.exe SOURCES windows/both.c
  COMMAND ${CMAKE_C_COMPILER} -std=gnu11 ${_flags} -static DEPENDS ${_import})
foreach(pair "clang_msvc;mingw" "mingw;clang_msvc" "clang_msvc;clang_gnu")
  list(GET pair 0 _first)
  list(GET pair 1 _second)
  nrdma_wine(both.${_first}.${_second} ${NRDMA_WINE} ${_bin}/both.exe ${_bin}/suite_${_first}.dll ${_bin}/suite_${_second}.dll)
endforeach()

# C programs that are the same everywhere.
foreach(name abi_c_slots test_node test_jobs test_objects)
  nrdma_build(${name}_mingw.exe SOURCES ${name}.c
    COMMAND ${CMAKE_C_COMPILER} -std=gnu11 ${_flags} -static DEPENDS ${_import} LINK -lpthread)
  nrdma_build(${name}_clang_gnu.exe SOURCES ${name}.c
    COMMAND ${NRDMA_CLANG_19} --target=x86_64-w64-windows-gnu -fuse-ld=lld -std=gnu11 ${_flags} -static
    DEPENDS ${_import} LINK -lpthread)
  nrdma_wine(${name}.mingw ${NRDMA_WINE} ${_bin}/${name}_mingw.exe)
  nrdma_wine(${name}.clang_gnu ${NRDMA_WINE} ${_bin}/${name}_clang_gnu.exe)
endforeach()

get_property(_files GLOBAL PROPERTY NRDMA_WINDOWS_FILES)
add_custom_target(windows_programs ALL DEPENDS ${_files})

# ---- what the DLL takes and gives ----

nrdma_wine(exports sh ${_checks}/dll.sh exports ${CMAKE_OBJDUMP} ${NRDMA_LIBRARY_DIR}/nrdma.dll
  ${CMAKE_CURRENT_SOURCE_DIR}/symbols.txt)
nrdma_wine(imports sh ${_checks}/dll.sh imports ${CMAKE_OBJDUMP} ${NRDMA_LIBRARY_DIR}/nrdma.dll)

# The headers, as clang sees them for Microsoft's ABI.
set(_syntax ${NRDMA_CLANGXX_19} ${_msvc} -fsyntax-only -nostdinc++ -isystem ${_windows}/msvc -I${_include} ${NRDMA_WARNINGS} -Wno-microsoft-enum-value)
nrdma_wine(header.c ${NRDMA_CLANG_19} --target=x86_64-pc-windows-msvc -ffreestanding -std=c11 -fsyntax-only -I${_include}
  ${NRDMA_WARNINGS} ${CMAKE_CURRENT_SOURCE_DIR}/headers/header.c)
nrdma_wine(header.layout ${NRDMA_CLANG_19} --target=x86_64-pc-windows-msvc -ffreestanding -std=c11 -fsyntax-only
  -I${_include} ${NRDMA_WARNINGS} ${CMAKE_CURRENT_SOURCE_DIR}/headers/layout.c)
foreach(std 17 20 2b)
  nrdma_wine(header.cxx${std} ${_syntax} -std=c++${std} ${CMAKE_CURRENT_SOURCE_DIR}/headers/header_c.cpp)
endforeach()

# ---- a stranger's project against the installed tree ----

set(_stage ${CMAKE_BINARY_DIR}/stage)
nrdma_wine(package.install ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --prefix ${_stage})
set_tests_properties(windows.package.install PROPERTIES FIXTURES_SETUP stage)
foreach(language c cxx)
  nrdma_wine(package.find_package.${language} ${CMAKE_CTEST_COMMAND}
    --build-and-test ${CMAKE_CURRENT_SOURCE_DIR}/consumer/${language} ${CMAKE_BINARY_DIR}/consumer/${language}
    --build-generator ${CMAKE_GENERATOR} --build-noclean
    --build-options -DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE} -Dnrdma_DIR=${_stage}/lib/cmake/nrdma
      -DNRDMA_KIND=nrdma -DCMAKE_EXE_LINKER_FLAGS=-static
    --test-command ${NRDMA_WINE} consumer.exe)
  set_tests_properties(windows.package.find_package.${language} PROPERTIES FIXTURES_REQUIRED "wine;stage"
    ENVIRONMENT "WINEPREFIX=${_wine_prefix};WINEDEBUG=-all;WINEPATH=${_bin}")
endforeach()

# ---- the command ----

if(NRDMA_TOOL)
  add_custom_target(windows_tool ALL
    COMMAND ${CMAKE_COMMAND} -E copy_if_different ${NRDMA_TOOL_FILE} ${_bin}/nrdma.exe
    DEPENDS nrdma_tool VERBATIM)
  foreach(how "tcp;--tile;128" "tcp.kill_one;--kill-one;--tile;128" "tcp.small_tiles;--tile;32")
    list(POP_FRONT how _name)
    nrdma_wine(demo.${_name} sh ${_checks}/demo.sh ${_bin}/nrdma.exe ${_bin}/${_name}.png --hosts 2 --size 640x360 --transport tcp ${how})
    set_tests_properties(windows.demo.${_name} PROPERTIES RUN_SERIAL TRUE)
  endforeach()

  # With the same of this host, where the release preset builds it.
  find_program(NRDMA_HOST_CARGO cargo HINTS ENV CARGO_HOME ENV HOME PATH_SUFFIXES bin .cargo/bin REQUIRED)
  set(_host_dir ${PROJECT_SOURCE_DIR}/build/cargo/tool)
  add_custom_target(windows_host_tool ALL
    COMMAND ${NRDMA_HOST_CARGO} build --locked --release --bin nrdma --manifest-path ${PROJECT_SOURCE_DIR}/Cargo.toml
      --target-dir ${_host_dir}
    USES_TERMINAL VERBATIM)
  nrdma_wine(together sh ${_windows}/together.sh ${_host_dir}/release/nrdma ${_bin}/nrdma.exe ${_bin}/together)
  set_tests_properties(windows.together PROPERTIES RUN_SERIAL TRUE)
endif()
