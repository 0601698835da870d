# Hosts and UCX: two versions of it, in both orders, none, and broken ones.
if(WIN32 OR NRDMA_SANITIZE)
  return()
endif()
add_executable(ucx_host hosts/ucx.c)
target_include_directories(ucx_host PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(ucx_host PRIVATE ${NRDMA_WARNINGS})
target_link_libraries(ucx_host PRIVATE nrdma::nrdma Threads::Threads ${CMAKE_DL_LIBS})

find_file(NRDMA_UCX_OLD libucp.so.0 PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib64 NO_DEFAULT_PATH)
# From fetch_ucx.sh.
set(NRDMA_UCX_NEW ${PROJECT_SOURCE_DIR}/build/ucx-1.22.0/libucx/lib/libucp.so.0)

# A library of that name, each in a folder of its own.
function(nrdma_fake_ucp name)
  add_library(fake_ucp_${name} SHARED fakes/ucp.c)
  target_compile_definitions(fake_ucp_${name} PRIVATE ${ARGN})
  set_target_properties(fake_ucp_${name} PROPERTIES PREFIX "" OUTPUT_NAME libucp SUFFIX ".so.0"
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_ucp_${name})
endfunction()
nrdma_fake_ucp(empty)
nrdma_fake_ucp(aged "FAKE_VERSION=1,12,1")
nrdma_fake_ucp(next "FAKE_VERSION=2,0,0")
nrdma_fake_ucp(hollow "FAKE_VERSION=1,14,0")
nrdma_fake_ucp(failing "FAKE_VERSION=1,14,0" "FAKE_INIT=-3")
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/fake_ucp_text/libucp.so.0 "This is no library. It is long enough to be one, which the loader sees before it looks at what is in it.\n")

# A host as it would look with an RDMA port at the address of the loopback interface.
set(_root ${CMAKE_CURRENT_BINARY_DIR}/ucx_root)
set(_port ${_root}/sys/class/infiniband/rxe0/ports/1)
file(WRITE ${_root}/sys/class/infiniband/rxe0/parent "lo\n")
file(WRITE ${_root}/sys/class/infiniband_verbs/uverbs0/ibdev "rxe0\n")
file(WRITE ${_root}/dev/infiniband/uverbs0 "")
file(WRITE ${_port}/state "4: ACTIVE\n")
file(WRITE ${_port}/link_layer "Ethernet\n")
file(WRITE ${_port}/gids/1 "0000:0000:0000:0000:0000:ffff:7f00:0001\n")
file(WRITE ${_port}/gid_attrs/types/1 "RoCE v2\n")
file(WRITE ${_port}/gid_attrs/ndevs/1 "lo\n")
file(MAKE_DIRECTORY ${_root}/empty)

# nrdma_ucx_test(NAME SETTING ROOT TRANSPORTS ENGINE LIBRARY [later] -- WORDS...): SETTING is what NRDMA_UCX_LIB names.
function(nrdma_ucx_test name setting root)
  add_test(NAME ucx.${name} COMMAND ${_checks}/ucx.sh $<TARGET_FILE:ucx_host> ${ARGN})
  set(_environment NRDMA_SYSROOT=${root})
  if(NOT setting STREQUAL "-")
    list(APPEND _environment NRDMA_UCX_LIB=${setting})
  endif()
  set_tests_properties(ucx.${name} PROPERTIES LABELS "ucx" TIMEOUT 120 ENVIRONMENT "${_environment}")
endfunction()

set(_fakes ${CMAKE_CURRENT_BINARY_DIR}/fake_ucp_)
set(_none ${_root}/empty)
# UCX is insisted on, and goes over its own tcp where there is no RDMA device.
nrdma_ucx_test(old - ${_none} ucx ucx - -- "UCX 1.13")
nrdma_ucx_test(new ${NRDMA_UCX_NEW} ${_none} ucx ucx - -- "UCX 1.22" "named by NRDMA_UCX_LIB")
nrdma_ucx_test(adopt_new ${NRDMA_UCX_OLD} ${_none} ucx ucx ${NRDMA_UCX_NEW} -- "UCX 1.22" "which the process had loaded")
nrdma_ucx_test(adopt_old ${NRDMA_UCX_NEW} ${_none} ucx ucx ${NRDMA_UCX_OLD} -- "UCX 1.13" "which the process had loaded")
nrdma_ucx_test(later_new - ${_none} ucx ucx ${NRDMA_UCX_NEW} later -- "UCX 1.13" "undefined symbol")
nrdma_ucx_test(later_old ${NRDMA_UCX_NEW} ${_none} ucx ucx libucp.so.0 later -- "UCX 1.22" "the host has loaded")
nrdma_ucx_test(nowhere /nonexistent/libucp.so.0 ${_none} ucx none - -- "not met" "/nonexistent/libucp.so.0")
# UCX is wanted where there is a device, but it is none that can be used: the next best, and why, in one line.
foreach(case "none|/nonexistent/libucp.so.0|UCX cannot be loaded as NRDMA_UCX_LIB says: /nonexistent/libucp.so.0"
    "text|${_fakes}text/libucp.so.0|invalid ELF header"
    "empty|${_fakes}empty/libucp.so.0|is not UCX: it has no function ucp_get_version"
    "aged|${_fakes}aged/libucp.so.0|is UCX 1.12.1, which is too old: nrdma needs 1.13 or later"
    "next|${_fakes}next/libucp.so.0|is UCX 2.0.0, whose interface nrdma does not know"
    "hollow|${_fakes}hollow/libucp.so.0|is UCX 1.14.0 but lacks ucs_status_string, ucp_config_read"
    "failing|${_fakes}failing/libucp.so.0|the fake fails"
    # Debian's has transports for such a device, but there is none; the other one was built without them.
    "no_device|-|network device 'rxe0:1' is not available"
    "no_transport|${NRDMA_UCX_NEW}|transport 'rc_verbs' is not available")
  string(REPLACE "|" ";" _case "${case}")
  list(GET _case 0 _name)
  list(GET _case 1 _setting)
  list(GET _case 2 _words)
  nrdma_ucx_test(${_name} ${_setting} ${_root} ucx,tcp tcp - -- "${_words}")
endforeach()
nrdma_ucx_test(no_port - ${_none} ucx,tcp tcp - -- "this host has no RDMA device")

# The suites over the newer UCX; programs.cmake runs them over the system's.
foreach(suite conformance dice fault_death fault_kill)
  if(TARGET ${suite} AND ucx IN_LIST NRDMA_TEST_ENGINES)
    nrdma_run(${suite}.ucx.new "${suite};ucx" ${suite} --engine ucx)
    set_property(TEST ${suite}.ucx.new APPEND PROPERTY ENVIRONMENT "NRDMA_UCX_LIB=${NRDMA_UCX_NEW}")
  endif()
endforeach()

# Two hosts choose by what each has: taken where both have a port (over UCX's tcp, for want of a device), and not
# where one has none, which both ends say.
if(NRDMA_TOOL)
  foreach(case "both|${_root}|${_root}|ucx|" "listener_only|${_root}|${_none}|tcp|this host has no RDMA device"
      "connector_only|${_none}|${_root}|tcp|this host has no RDMA device")
    string(REPLACE "|" ";" _case "${case}")
    list(POP_FRONT _case _name)
    add_test(NAME ucx.ends.${_name} COMMAND sh ${_checks}/ucx_ends.sh ${NRDMA_TOOL_FILE} ${_case})
    set_tests_properties(ucx.ends.${_name} PROPERTIES LABELS "ucx" TIMEOUT 120
      ENVIRONMENT "NRDMA_UCX_TLS=tcp;NRDMA_UCX_NET_DEVICES=lo")
  endforeach()
endif()
