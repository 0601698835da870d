# The command's demo, small: worker processes, a picture that is compared with one rendered here.
foreach(how "demo" "demo.kill_one;--kill-one" "demo.small_tiles;--tile;32")
  list(POP_FRONT how _name)
  nrdma_check(${_name} tool sh ${_checks}/demo.sh ${NRDMA_TOOL_FILE} ${CMAKE_CURRENT_BINARY_DIR}/${_name}.png
    --hosts 2 --size 640x360 ${how})
endforeach()
nrdma_check(demo.tcp tool sh ${_checks}/demo.sh ${NRDMA_TOOL_FILE} ${CMAKE_CURRENT_BINARY_DIR}/demo.tcp.png
  --hosts 2 --size 640x360 --transport tcp --tile 128)

# What it finds, and what it sends; its largest result is beyond 4 GiB.
nrdma_check(doctor tool sh ${_checks}/doctor.sh ${NRDMA_TOOL_FILE} ${CMAKE_COMMAND})
set_tests_properties(doctor PROPERTIES TIMEOUT 300 RUN_SERIAL TRUE)

nrdma_check(bench tool sh ${_checks}/bench.sh ${NRDMA_TOOL_FILE} ${CMAKE_COMMAND})
set_tests_properties(bench PROPERTIES RUN_SERIAL TRUE)

# Several hosts, in network namespaces.
find_program(NRDMA_BASH bash)
if(NRDMA_BASH)
  nrdma_check(netns netns ${NRDMA_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/rigs/netns.sh ${NRDMA_TOOL_FILE})
  set_tests_properties(netns PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
endif()

# Two emulated machines with RDMA devices; each step inside is a test of its own, which reads its verdict.
if(NRDMA_RDMA_RIG AND NRDMA_BASH AND TARGET conformance AND TARGET dice)
  set(_rig ${CMAKE_CURRENT_SOURCE_DIR}/rigs/soft_roce)
  add_executable(elsewhere ${_rig}/elsewhere.c)
  target_compile_options(elsewhere PRIVATE ${NRDMA_WARNINGS})
  set(_stranger)
  find_path(NRDMA_UCP_INCLUDE ucp/api/ucp.h)
  find_library(NRDMA_UCP ucp)
  find_library(NRDMA_UCS ucs)
  if(NRDMA_UCP_INCLUDE AND NRDMA_UCP AND NRDMA_UCS)
    add_executable(stranger ${_rig}/stranger.c)
    target_compile_options(stranger PRIVATE ${NRDMA_WARNINGS})
    target_link_libraries(stranger PRIVATE ${NRDMA_UCP} ${NRDMA_UCS})
    set(_stranger --program $<TARGET_FILE:stranger>)
  endif()
  set(_report ${CMAKE_CURRENT_BINARY_DIR}/rdma/report)
  nrdma_check(rdma.machines rdma ${NRDMA_BASH} ${_rig}/run.sh --report ${_report} --library $<TARGET_FILE:nrdma>
    --program $<TARGET_FILE:conformance> --program $<TARGET_FILE:dice> --program $<TARGET_FILE:fault_death>
    --program $<TARGET_FILE:fault_kill> --program $<TARGET_FILE:elsewhere> ${_stranger}
    --program ${NRDMA_TOOL_FILE} --program ${NRDMA_BENCH_FILE}
    --cache ${NRDMA_CARGO_DIR}/../rdma --judge no)
  # 4 minutes on two quiet processors.
  set_tests_properties(rdma.machines PROPERTIES TIMEOUT 960 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE FIXTURES_SETUP rdma)
  file(STRINGS ${_rig}/guest/steps.sh _steps REGEX "^all=")
  string(REGEX REPLACE "^all=\"(.*)\"$" "\\1" _steps "${_steps}")
  separate_arguments(_steps UNIX_COMMAND "${_steps}")
  foreach(step IN LISTS _steps)
    nrdma_check(rdma.${step} rdma ${NRDMA_BASH} ${_rig}/verdict.sh ${_report} ${step})
    set_tests_properties(rdma.${step} PROPERTIES SKIP_RETURN_CODE 77 FIXTURES_REQUIRED rdma)
  endforeach()
endif()
