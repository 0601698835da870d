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

# Several hosts, in network namespaces.
find_program(NRDMA_BASH bash)
if(NRDMA_BASH)
  nrdma_check(netns netns ${NRDMA_BASH} ${CMAKE_CURRENT_SOURCE_DIR}/rigs/netns.sh ${NRDMA_TOOL_FILE})
  set_tests_properties(netns PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 RUN_SERIAL TRUE)
endif()
