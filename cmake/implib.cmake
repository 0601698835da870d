# Makes the import library of Microsoft's tool chain for a DLL.
# cmake -DDLL=... -DLIB=... -DOBJDUMP=... -DDLLTOOL=... -P implib.cmake
execute_process(COMMAND ${OBJDUMP} -p ${DLL} OUTPUT_VARIABLE _dump COMMAND_ERROR_IS_FATAL ANY)
# The table of names is the last of the exports.
string(REGEX REPLACE ".*Ordinal/Name Pointer. Table" "" _dump "${_dump}")
string(REGEX MATCHALL "nrdma_[a-z0-9_]+" _names "${_dump}")
list(REMOVE_DUPLICATES _names)
list(SORT _names)
if(NOT _names)
  message(FATAL_ERROR "${DLL} exports nothing")
endif()
list(JOIN _names "\n" _names)
string(REGEX REPLACE "\\.lib$" ".def" _def "${LIB}")
file(WRITE ${_def} "LIBRARY nrdma.dll\nEXPORTS\n${_names}\n")
execute_process(COMMAND ${DLLTOOL} -m i386:x86-64 -d ${_def} -l ${LIB} COMMAND_ERROR_IS_FATAL ANY)
