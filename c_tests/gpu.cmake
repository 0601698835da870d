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

# ---- D3D12 by NvAPI: fake COM objects, which need no Windows ----

nrdma_fake(fake_nvapi libnvapi64.so fakes/nvapi.c)
nrdma_gpu_program(d3d12_slots d3d12_slots.c)
set(_nvapi "NRDMA_NVAPI_LIB=$<TARGET_FILE:fake_nvapi>")
foreach(case good misuse faults)
  nrdma_gpu_case(${case} d3d12_slots ${case} ENV "${_nvapi}")
endforeach()
nrdma_gpu_case(untold d3d12_slots untold ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=noquery")
nrdma_gpu_case(old_driver d3d12_slots refused "older than release 530" ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=nofn")
nrdma_gpu_case(no_gpu d3d12_slots refused "NvAPI status -6 (no NVIDIA GPU)" ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=noinit")
nrdma_gpu_case(no_bar1 d3d12_slots refused "RDMA_BAR1_SUPPORT" ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=nosupport")
nrdma_gpu_case(untold_no d3d12_slots refused "status -104 (not supported)"
  ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=noquery,nosupport")
nrdma_gpu_case(no_memory d3d12_slots refused "status -130 (out of memory)" ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=fail")
nrdma_gpu_case(too_short d3d12_slots refused "where 131072 were asked for" ENV "${_nvapi}" "NRDMA_FAKE_NVAPI=short")
nrdma_gpu_case(no_nvapi d3d12_slots refused "Windows only")

# ---- Vulkan: the CPU driver, below the fake layer, below the validation layer ----

find_path(NRDMA_VULKAN_INCLUDE vulkan/vk_layer.h)
set(NRDMA_VULKAN_DRIVER /usr/share/vulkan/icd.d/lvp_icd.${CMAKE_SYSTEM_PROCESSOR}.json CACHE FILEPATH "lavapipe's manifest")
set(NRDMA_VULKAN_LAYERS /usr/share/vulkan/explicit_layer.d CACHE PATH "Where the validation layer's manifest is")
if(NOT NRDMA_VULKAN_INCLUDE OR NOT EXISTS ${NRDMA_VULKAN_DRIVER}
    OR NOT EXISTS ${NRDMA_VULKAN_LAYERS}/VkLayer_khronos_validation.json)
  add_test(NAME vulkan_slots COMMAND sh -c "echo no lavapipe, validation layer or Vulkan headers here; exit 77")
  set_tests_properties(vulkan_slots PROPERTIES SKIP_RETURN_CODE 77)
  return()
endif()
nrdma_fake(fake_vulkan libVkLayer_nrdma_fake_rdma.so
  fakes/vulkan/state.c fakes/vulkan/buffers.c fakes/vulkan/layer.c)
set_target_properties(fake_vulkan PROPERTIES C_VISIBILITY_PRESET hidden)
target_include_directories(fake_vulkan PRIVATE ${NRDMA_VULKAN_INCLUDE})
set(NRDMA_FAKE_LAYER ./libVkLayer_nrdma_fake_rdma.so)
set(_layer ${CMAKE_CURRENT_BINARY_DIR}/fakes/fake_vulkan)
configure_file(fakes/vulkan/VkLayer_nrdma_fake_rdma.json.in ${_layer}/VkLayer_nrdma_fake_rdma.json @ONLY)
# The order of the layers is that of the folders, not of the names: the validation layer's first, so that it is on top.
set(_vulkan "VK_ICD_FILENAMES=${NRDMA_VULKAN_DRIVER}" "VK_LAYER_PATH=${NRDMA_VULKAN_LAYERS}:${_layer}"
  "VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation:VK_LAYER_NRDMA_fake_rdma"
  "NRDMA_TEST_LAYER=${_layer}/libVkLayer_nrdma_fake_rdma.so")
if(NRDMA_SANITIZE)
  # The CPU driver keeps what it compiled.
  list(APPEND _vulkan "ASAN_OPTIONS=detect_leaks=0")
endif()

nrdma_gpu_program(vulkan_slots vulkan_slots.c)
target_include_directories(vulkan_slots PRIVATE ${NRDMA_VULKAN_INCLUDE})
function(nrdma_vulkan_case name)
  cmake_parse_arguments(T "" "FAKE" "" ${ARGN})
  set(_environment ${_environment} ${_vulkan} "NRDMA_FAKE_VK=${T_FAKE}")
  nrdma_run(vulkan_slots.${name} gpu vulkan_slots ${T_UNPARSED_ARGUMENTS})
  if(vulkan_slots_clang_file)
    nrdma_run(vulkan_slots.${name}.clang "gpu;clang" ${vulkan_slots_clang_file} ${T_UNPARSED_ARGUMENTS})
  endif()
endfunction()
foreach(case good addressed validation_on_top not_enabled misuse faults)
  nrdma_vulkan_case(${case} ${case})
endforeach()
nrdma_vulkan_case(low_bits low_bits FAKE lowbits)
# The fake without the loader's layers, as where no layer reaches.
nrdma_fake(fake_vulkan_embedded libfake_vulkan.so
  fakes/vulkan/state.c fakes/vulkan/buffers.c fakes/vulkan/layer.c)
set_target_properties(fake_vulkan_embedded PROPERTIES C_VISIBILITY_PRESET hidden)
target_include_directories(fake_vulkan_embedded PRIVATE ${NRDMA_VULKAN_INCLUDE})
target_compile_definitions(fake_vulkan_embedded PRIVATE FAKE_VK_EMBED)
set(_layered ${_vulkan})
list(FILTER _vulkan EXCLUDE REGEX "LAYER")
list(APPEND _vulkan "NRDMA_TEST_LAYER=$<TARGET_FILE:fake_vulkan_embedded>")
nrdma_vulkan_case(embedded embedded)
set(_vulkan ${_layered})

# What the device lacks; whether the host enables the extension; whether the probe knows without trying.
nrdma_vulkan_case(no_extension without planned "VkPhysicalDevice has no VK_NV_external_memory_rdma" FAKE noext)
nrdma_vulkan_case(no_feature with planned "lacks the feature externalMemoryRDMA" FAKE nofeature)
nrdma_vulkan_case(no_type with planned "no memory type with RDMA_CAPABLE" FAKE notype)
nrdma_vulkan_case(not_exportable with planned "not exportable" FAKE noexport)
nrdma_vulkan_case(no_memory with unplanned "out of device memory" FAKE allocfail)
nrdma_vulkan_case(no_address with unplanned "vkGetMemoryRemoteAddressNV failed with VkResult -1000072003" FAKE addrfail)
