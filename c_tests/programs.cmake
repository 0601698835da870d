# Test programs, found by file name.
set(_cxx_sanitize)
set(_environment)
set(_scale 1)
if(NRDMA_SANITIZE)
  set(_cxx_sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  set(_environment "NRDMA_TEST_SLOW=4" "ASAN_OPTIONS=detect_stack_use_after_return=1" "UBSAN_OPTIONS=print_stacktrace=1")
  set(_scale 3)
endif()

# clang is a second compiler in the same build tree, which CMake has no word for: custom commands.
if(NOT NRDMA_SANITIZE AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  find_program(NRDMA_CLANG NAMES clang clang-19 clang-16 clang-14)
  find_program(NRDMA_CLANGXX NAMES clang++ clang++-19 clang++-16 clang++-14)
endif()
if(NOT WIN32 AND NOT NRDMA_SANITIZE)
  find_program(NRDMA_VALGRIND valgrind)
endif()

add_library(doctest_main OBJECT doctest_main.cpp)
target_link_libraries(doctest_main PUBLIC doctest::doctest)

# Whether a file brings its own main().
function(nrdma_has_main file result)
  file(STRINGS ${file} _lines REGEX "DOCTEST_CONFIG_IMPLEMENT|int main\\(|rig_main\\.hpp")
  if(_lines)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Builds `name`.clang from the same sources; sets `result` to the file, or to nothing without clang.
function(nrdma_clang_program name result)
  set(${result} "" PARENT_SCOPE)
  if(NOT NRDMA_CLANGXX OR NOT NRDMA_CLANG)
    return()
  endif()
  set(_objects)
  foreach(file IN LISTS ARGN)
    get_filename_component(_stem ${file} NAME)
    set(_object ${CMAKE_CURRENT_BINARY_DIR}/clang/${name}.dir/${_stem}.o)
    if(file MATCHES "\\.c$")
      set(_compile ${NRDMA_CLANG} -std=gnu11)
    else()
      set(_compile ${NRDMA_CLANGXX} -std=gnu++17)
    endif()
    add_custom_command(OUTPUT ${_object}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/clang/${name}.dir
      COMMAND ${_compile} -O0 -g1 ${NRDMA_WARNINGS} -pthread -I${_include} -MMD -MF ${_object}.d
        -c ${CMAKE_CURRENT_SOURCE_DIR}/${file} -o ${_object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file} DEPFILE ${_object}.d
      COMMENT "Building clang/${name}.dir/${_stem}.o" VERBATIM)
    list(APPEND _objects ${_object})
  endforeach()
  set(_program ${CMAKE_CURRENT_BINARY_DIR}/clang/${name})
  add_custom_command(OUTPUT ${_program}
    COMMAND ${NRDMA_CLANGXX} -pthread ${_objects} $<TARGET_FILE:nrdma> -ldl -lm -Wl,-rpath,${NRDMA_LIBRARY_DIR} -o ${_program}
    DEPENDS ${_objects} nrdma_cargo
    COMMENT "Linking clang/${name}" VERBATIM)
  add_custom_target(${name}_clang ALL DEPENDS ${_program})
  set(${result} ${_program} PARENT_SCOPE)
endfunction()

# Registers a run of a program.
function(nrdma_run name label)
  add_test(NAME ${name} COMMAND ${ARGN})
  set(_limit 120)
  if(label MATCHES "conformance|fault|large|dice")
    set(_limit 600)
  endif()
  math(EXPR _limit "${_limit} * ${_scale}")
  set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${_limit} SKIP_RETURN_CODE 77
    ENVIRONMENT "${_environment}")
  if(label MATCHES "conformance|fault|large|dice")
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

# A program with all its builds and runs. ENGINES: run it once for each.
function(nrdma_program name)
  cmake_parse_arguments(T "" "LABEL" "SOURCES;ENGINES" ${ARGN})
  set(_with_main FALSE)
  set(_only_c TRUE)
  foreach(file IN LISTS T_SOURCES)
    nrdma_has_main(${file} _main)
    if(_main)
      set(_with_main TRUE)
    endif()
    if(NOT file MATCHES "\\.c$")
      set(_only_c FALSE)
    endif()
  endforeach()

  add_executable(${name} ${T_SOURCES})
  target_compile_options(${name} PRIVATE ${NRDMA_WARNINGS} ${_cxx_sanitize})
  # UBSan looks at an object's type through a pipe, and calls it a wrong one when it cannot open any: not where
  # programs run out of descriptors on purpose.
  if(NRDMA_SANITIZE AND T_LABEL STREQUAL "fault")
    target_compile_options(${name} PRIVATE -fno-sanitize=vptr)
  endif()
  target_link_options(${name} PRIVATE ${_cxx_sanitize})
  target_link_libraries(${name} PRIVATE nrdma::nrdma Threads::Threads ${CMAKE_DL_LIBS} m)
  set(_sources ${T_SOURCES})
  if(NOT _only_c)
    if(_with_main)
      target_link_libraries(${name} PRIVATE doctest::doctest)
    else()
      target_link_libraries(${name} PRIVATE doctest_main)
      list(APPEND _sources doctest_main.cpp)
    endif()
  endif()
  nrdma_clang_program(${name} _clang ${_sources})

  set(_runs "none")
  if(T_ENGINES)
    set(_runs ${T_ENGINES})
  endif()
  foreach(run IN LISTS _runs)
    set(_args)
    set(_suffix)
    if(NOT run STREQUAL "none")
      set(_args --engine ${run})
      set(_suffix .${run})
    endif()
    nrdma_run(${name}${_suffix} "${T_LABEL}" ${name} ${_args})
    if(_clang)
      nrdma_run(${name}${_suffix}.clang "${T_LABEL};clang" ${_clang} ${_args})
    endif()
    if(NRDMA_VALGRIND AND _only_c)
      nrdma_run(${name}${_suffix}.valgrind "valgrind" ${NRDMA_VALGRIND} -q --leak-check=full --show-leak-kinds=definite
        --errors-for-leak-kinds=definite --error-exitcode=9 --child-silent-after-fork=yes
        $<TARGET_FILE:${name}> ${_args})
      set_tests_properties(${name}${_suffix}.valgrind PROPERTIES TIMEOUT 600 ENVIRONMENT "NRDMA_TEST_SLOW=20")
    endif()
  endforeach()
endfunction()

set(_kinds "test:unit" "abi:abi" "fault:fault")
# Sanitizers would need several times the memory of results that are larger than 4 GiB.
if(NOT NRDMA_SANITIZE)
  list(APPEND _kinds "large:large")
endif()
foreach(pair IN LISTS _kinds)
  string(REPLACE ":" ";" pair "${pair}")
  list(GET pair 0 _prefix)
  list(GET pair 1 _label)
  file(GLOB _files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${_prefix}_*.c ${_prefix}_*.cpp)
  foreach(file IN LISTS _files)
    get_filename_component(_name ${file} NAME_WE)
    # Between processes, so not over inproc.
    set(_engines)
    if(_name MATCHES "^large_|^fault_(kill|stop|death)$")
      set(_engines ${NRDMA_TEST_ENGINES})
      list(REMOVE_ITEM _engines inproc)
    endif()
    nrdma_program(${_name} LABEL ${_label} SOURCES ${file} ENGINES ${_engines})
  endforeach()
endforeach()
file(GLOB _files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} conformance*.cpp)
if(_files)
  nrdma_program(conformance LABEL conformance SOURCES ${_files} ENGINES ${NRDMA_TEST_ENGINES})
  # The threads that a fragment makes are OpenMP's in this build and std::thread in clang's.
  if(OpenMP_CXX_FOUND AND NOT NRDMA_SANITIZE)
    target_link_libraries(conformance PRIVATE OpenMP::OpenMP_CXX)
  endif()
endif()

file(GLOB _files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} dice*.cpp)
if(_files)
  nrdma_program(dice LABEL dice SOURCES ${_files} ENGINES ${NRDMA_TEST_ENGINES})
  # The same sources against the SDK's own headers.
  if(NRDMA_MI_INCLUDE)
    add_executable(dice_real ${_files})
    target_include_directories(dice_real SYSTEM PRIVATE ${NRDMA_MI_INCLUDE})
    target_link_libraries(dice_real PRIVATE nrdma::nrdma doctest::doctest Threads::Threads)
    foreach(engine IN LISTS NRDMA_TEST_ENGINES)
      nrdma_run(dice_real.${engine} dice dice_real --engine ${engine})
    endforeach()
  endif()
endif()

# The example of a job, as it is, with headers of an SDK in the place of ours.
add_executable(tiles_sdk ${PROJECT_SOURCE_DIR}/examples/tiles.cpp)
target_include_directories(tiles_sdk SYSTEM PRIVATE sdk/base sdk/neuraylib)
set(_tiles tiles_sdk)
if(NRDMA_MI_INCLUDE)
  add_executable(tiles_real ${PROJECT_SOURCE_DIR}/examples/tiles.cpp)
  target_include_directories(tiles_real SYSTEM PRIVATE ${NRDMA_MI_INCLUDE})
  list(APPEND _tiles tiles_real)
endif()
foreach(program IN LISTS _tiles)
  target_compile_options(${program} PRIVATE ${NRDMA_WARNINGS} ${_cxx_sanitize})
  target_link_options(${program} PRIVATE ${_cxx_sanitize})
  target_link_libraries(${program} PRIVATE nrdma::nrdma)
  nrdma_run(${program} example ${program} ${CMAKE_CURRENT_BINARY_DIR}/${program}.ppm)
endforeach()

# ---- more builds of the interface tests ----

# Through the static library, and by dlopen.
if(TARGET abi_c_slots)
  add_executable(abi_static abi_c_slots.c)
  target_compile_options(abi_static PRIVATE ${NRDMA_WARNINGS} ${_cxx_sanitize})
  target_link_options(abi_static PRIVATE ${_cxx_sanitize})
  target_link_libraries(abi_static PRIVATE nrdma::static)
  nrdma_run(abi_static abi abi_static)
endif()
# A host that only dlopens.
add_executable(abi_dlopen hosts/dlopen.c)
add_dependencies(abi_dlopen nrdma_cargo)
target_include_directories(abi_dlopen PRIVATE ${_include})
target_compile_options(abi_dlopen PRIVATE ${NRDMA_WARNINGS} ${_cxx_sanitize})
target_link_options(abi_dlopen PRIVATE ${_cxx_sanitize})
target_link_libraries(abi_dlopen PRIVATE ${CMAKE_DL_LIBS})
nrdma_run(abi_dlopen abi abi_dlopen $<TARGET_FILE:nrdma>)

# A neuray host's loop over a plugin library.
add_executable(abi_plugin hosts/plugin.cpp)
add_dependencies(abi_plugin nrdma_neuray)
target_compile_options(abi_plugin PRIVATE ${NRDMA_WARNINGS} ${_cxx_sanitize})
# No header of ours is in a neuray host that could give the plugin its typeinfo, which this check wants to see.
if(NRDMA_SANITIZE)
  target_compile_options(abi_plugin PRIVATE -fno-sanitize=vptr)
endif()
target_link_options(abi_plugin PRIVATE ${_cxx_sanitize})
target_link_libraries(abi_plugin PRIVATE ${CMAKE_DL_LIBS})
nrdma_run(abi_plugin abi abi_plugin ${NRDMA_NEURAY_FILE})
if(NRDMA_VALGRIND)
  nrdma_run(abi_plugin.valgrind valgrind ${NRDMA_VALGRIND} -q --leak-check=full --error-exitcode=9
    $<TARGET_FILE:abi_plugin> ${NRDMA_NEURAY_FILE})
endif()

# UBSan's vptr check reads the type information behind every virtual call. The others are hosts without it.
if(TARGET abi_vtable AND NOT NRDMA_SANITIZE)
  foreach(variant "ubsan:-fsanitize=undefined,vptr -fno-sanitize-recover=all" "nortti:-fno-rtti"
      "lto:-O3 -flto -fvisibility=hidden")
    string(REGEX MATCH "^[a-z]+" _name "${variant}")
    string(REGEX REPLACE "^[a-z]+:" "" _flags "${variant}")
    separate_arguments(_flags UNIX_COMMAND "${_flags}")
    add_executable(abi_vtable_${_name} abi_vtable.cpp doctest_main.cpp)
    target_compile_options(abi_vtable_${_name} PRIVATE ${NRDMA_WARNINGS} ${_flags})
    target_link_options(abi_vtable_${_name} PRIVATE ${_flags})
    target_link_libraries(abi_vtable_${_name} PRIVATE nrdma::nrdma doctest::doctest Threads::Threads)
    nrdma_run(abi_vtable_${_name} abi abi_vtable_${_name})
  endforeach()
endif()

# clang's whole-program devirtualisation and CFI take the classes that they see for all there are; the
# visibility that our headers set tells them better. Both need LTO, and so lld.
if(TARGET abi_vtable AND NRDMA_CLANGXX)
  find_program(NRDMA_LLD ld.lld)
endif()
if(NRDMA_LLD)
  foreach(variant "wpd:-fwhole-program-vtables" "cfi:-fsanitize=cfi-vcall -fno-sanitize-ignorelist")
    string(REGEX MATCH "^[a-z]+" _name "${variant}")
    string(REGEX REPLACE "^[a-z]+:" "" _flags "${variant}")
    separate_arguments(_flags UNIX_COMMAND "${_flags}")
    set(_program ${CMAKE_CURRENT_BINARY_DIR}/clang/abi_vtable_${_name})
    add_custom_command(OUTPUT ${_program}
      COMMAND ${NRDMA_CLANGXX} -std=gnu++17 -O2 -flto -fvisibility=hidden ${_flags} -fuse-ld=lld -pthread
        -I${_include} ${CMAKE_CURRENT_SOURCE_DIR}/abi_vtable.cpp ${CMAKE_CURRENT_SOURCE_DIR}/doctest_main.cpp
        $<TARGET_FILE:nrdma> -Wl,-rpath,${NRDMA_LIBRARY_DIR} -o ${_program}
      DEPENDS abi_vtable.cpp doctest_main.cpp nrdma_cargo ${_include}/nrdma/nrdma.h ${_include}/nrdma/nrdma.hpp
        ${_include}/nrdma/neuray.hpp
      COMMENT "Building clang/abi_vtable_${_name}" VERBATIM)
    add_custom_target(abi_vtable_${_name} ALL DEPENDS ${_program})
    nrdma_run(abi_vtable_${_name}.clang "abi;clang" ${_program})
  endforeach()
endif()
