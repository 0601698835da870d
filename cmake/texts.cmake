cmake_minimum_required(VERSION 3.22)
# Writes what the command says of itself.
file(MAKE_DIRECTORY ${OUT})
foreach(text IN ITEMS "nrdma.1|man" "nrdma.bash|completions;bash" "_nrdma|completions;zsh" "nrdma.fish|completions;fish")
  string(REPLACE "|" ";" text "${text}")
  list(POP_FRONT text _file)
  execute_process(COMMAND ${TOOL} ${text} OUTPUT_FILE ${OUT}/${_file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
