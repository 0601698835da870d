# Slots, on fakes of the drivers: gpu_*.c and gpu_*.cpp take the name of a case, and each case is a run with an
# environment of its own, because drivers are loaded once in a process.
if(WIN32)
  return()
endif()

# ---- fakes ----

file(GLOB _fake_cuda ${CMAKE_CURRENT_SOURCE_DIR}/fakes/cuda/*.c)
function(nrdma_fake name soname)
  add_library(${name} MODULE ${ARGN})
  set_target_properties(${name} PROPERTIES PREFIX "" OUTPUT_NAME ${soname} SUFFIX "" C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fakes/${name})
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wno-unused-parameter -Werror)
  target_link_options(${name} PRIVATE -Wl,-soname,${soname})
  target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endfunction()
nrdma_fake(fake_cuda libcuda.so.1 ${_fake_cuda})
nrdma_fake(fake_cuda_old libcuda.so.1 ${_fake_cuda})
target_compile_definitions(fake_cuda_old PRIVATE FAKE_OLD_DRIVER)
nrdma_fake(fake_nvml libnvidia-ml.so.1 fakes/nvml.c)
foreach(fake fake_cuda fake_cuda_old)
  set_target_properties(${fake} PROPERTIES C_VISIBILITY_PRESET hidden)
endforeach()

# ---- programs ----

# Builds it by the build tree's compiler and by clang; its cases are added by nrdma_gpu_case.
function(nrdma_gpu_program name source)
  add_executable(${name} ${source})
  target_compile_options(${name} PRIVATE ${NRDMA_WARNINGS} ${_cxx_sanitize})
  target_link_options(${name} PRIVATE ${_cxx_sanitize})
  target_link_libraries(${name} PRIVATE nrdma::nrdma Threads::Threads ${CMAKE_DL_LIBS})
  nrdma_clang_program(${name} _clang ${source})
  set(${name}_clang_file "${_clang}" PARENT_SCOPE)
endfunction()

# nrdma_gpu_case(NAME PROGRAM ARGS... [ENV ...] [OLD] [LEAKS]). The fake is strict at exit, except with LEAKS.
function(nrdma_gpu_case name program)
  cmake_parse_arguments(T "OLD;LEAKS" "" "ENV" ${ARGN})
  set(_fake fake_cuda)
  if(T_OLD)
    set(_fake fake_cuda_old)
  endif()
  set(_environment ${_environment} "NRDMA_TEST_CUDA=$<TARGET_FILE:${_fake}>" ${T_ENV})
  if(NOT T_LEAKS)
    list(APPEND _environment "FAKECUDA_STRICT=1")
  endif()
  set(_name ${program}.${name})
  nrdma_run(${_name} gpu ${program} ${T_UNPARSED_ARGUMENTS})
  if(${program}_clang_file)
    nrdma_run(${_name}.clang "gpu;clang" ${${program}_clang_file} ${T_UNPARSED_ARGUMENTS})
  endif()
  if(NRDMA_VALGRIND)
    nrdma_run(${_name}.valgrind "gpu;valgrind" ${NRDMA_VALGRIND} -q --leak-check=full --show-leak-kinds=definite
      --errors-for-leak-kinds=definite --error-exitcode=9 --child-silent-after-fork=yes
      $<TARGET_FILE:${program}> ${T_UNPARSED_ARGUMENTS})
    set_tests_properties(${_name}.valgrind PROPERTIES TIMEOUT 600)
  endif()
endfunction()

nrdma_gpu_program(gpu_cuda gpu_cuda.c)
foreach(case kinds card unreachable exports misuse host_memory quiet)
  nrdma_gpu_case(${case} gpu_cuda ${case})
endforeach()
nrdma_gpu_case(integrated gpu_cuda integrated ENV "FAKECUDA_ATTR=18=1")
nrdma_gpu_case(suballocated gpu_cuda suballocated ENV "FAKECUDA_SUBALLOC=1")
nrdma_gpu_case(deferred gpu_cuda deferred ENV "FAKECUDA_DEFER=1")
nrdma_gpu_case(old_driver gpu_cuda old_driver OLD)

# Found by nrdma itself, by full path: these hosts have loaded no driver.
set(_cuda "NRDMA_CUDA_LIB=$<TARGET_FILE:fake_cuda>")
foreach(size 0 268435456 68719476736)
  nrdma_gpu_case(bar1_${size} gpu_cuda ring_depth
    ENV "FAKENVML_BAR1=${size}" "NRDMA_NVML_LIB=$<TARGET_FILE:fake_nvml>" "${_cuda}")
endforeach()
nrdma_gpu_case(bar1_no_nvml gpu_cuda ring_depth
  ENV "FAKENVML_BAR1=0" "NRDMA_NVML_LIB=/no/such/libnvidia-ml.so.1" "${_cuda}")
nrdma_gpu_case(no_driver gpu_cuda without "no CUDA driver" ENV "NRDMA_CUDA_LIB=/no/such/libcuda.so.1")
nrdma_gpu_case(no_gpu gpu_cuda without "sees no GPU" ENV "FAKECUDA_DEVICES=0" "${_cuda}")
nrdma_gpu_case(stub_driver gpu_cuda without "stub" ENV "FAKECUDA_FAIL=cuInit:1+:34" "${_cuda}")
nrdma_gpu_case(broken_driver gpu_cuda without "12345" ENV "FAKECUDA_FAIL=cuDeviceGetCount:1+:12345" "${_cuda}")
# The system's search, as a program that was started with LD_LIBRARY_PATH finds its driver.
nrdma_gpu_case(search_path gpu_cuda without "sees no GPU"
  ENV "FAKECUDA_DEVICES=0" "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:fake_cuda>")

nrdma_gpu_program(gpu_contexts gpu_contexts.c)
foreach(case untouched released_under context_gone choice threads forked)
  nrdma_gpu_case(${case} gpu_contexts ${case} ENV "FAKECUDA_DEVICES=2")
endforeach()

nrdma_gpu_program(gpu_faults gpu_faults.c)
foreach(case DEVICE VMM RING PINNED HOST)
  string(TOLOWER ${case} _name)
  nrdma_gpu_case(${_name} gpu_faults ${case} LEAKS)
  nrdma_gpu_case(${_name}_clean gpu_faults ${case} clean)
endforeach()

nrdma_gpu_program(gpu_score gpu_score.cpp)
foreach(case traits ladder pins threads exit)
  nrdma_gpu_case(${case} gpu_score ${case})
endforeach()
nrdma_check(gpu_score.adapter gpu sh ${_checks}/quoted.sh ${PROJECT_SOURCE_DIR}/examples/score_adapter.hpp
  ${PROJECT_SOURCE_DIR}/docs/slots.md 40)
