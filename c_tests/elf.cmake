# What the shared library is, apart from what it does.
nrdma_check(elf.symbols abi sh ${_checks}/symbols.sh $<TARGET_FILE:nrdma> ${CMAKE_CURRENT_SOURCE_DIR}/symbols.txt)
foreach(what soname nodelete needed glibc)
  nrdma_check(elf.${what} abi sh ${_checks}/elf.sh ${what} $<TARGET_FILE:nrdma> ${NRDMA_SONAME})
endforeach()
nrdma_check(elf.neuray_symbols abi sh ${_checks}/symbols.sh ${NRDMA_NEURAY_FILE}
  ${CMAKE_CURRENT_SOURCE_DIR}/symbols_neuray.txt)

# The header against the committed description of its types. NRDMA_ABI=write ctest -R abi.diff renews it.
find_program(NRDMA_ABIDIFF abidiff)
find_program(NRDMA_ABIDW abidw)
if(NRDMA_ABIDIFF AND NRDMA_ABIDW)
  nrdma_check(abi.diff abi sh ${_checks}/abidiff.sh ${CMAKE_C_COMPILER} ${_include}
    ${CMAKE_CURRENT_SOURCE_DIR}/symbols.txt ${CMAKE_CURRENT_SOURCE_DIR}/abi/nrdma.abi ${CMAKE_CURRENT_BINARY_DIR}/abi)
endif()
