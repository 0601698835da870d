# The command's demo, small: worker processes, a picture that is compared with one rendered here.
foreach(how "demo" "demo.kill_one;--kill-one" "demo.small_tiles;--tile;32")
  list(POP_FRONT how _name)
  nrdma_check(${_name} tool sh ${_checks}/demo.sh ${NRDMA_TOOL_FILE} ${CMAKE_CURRENT_BINARY_DIR}/${_name}.png
    --hosts 2 --size 640x360 ${how})
endforeach()
