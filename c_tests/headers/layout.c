/* Sizes and offsets that hosts were compiled with. A field is added at a structure's end, nowhere else. */
#include <nrdma/nrdma.h>

#ifdef __cplusplus
#  define HOLDS(x) static_assert(x, #  x)
#else
#  define HOLDS(x) _Static_assert(x, #  x)
#endif
#define AT(type, field, offset) HOLDS(offsetof(type, field) == (offset))

HOLDS(sizeof(nrdma_status) == 4);
HOLDS(sizeof(nrdma_cxx_abi) == 4);
HOLDS(sizeof(nrdma_uuid) == 16);
AT(nrdma_uuid, id1, 0);
AT(nrdma_uuid, id4, 12);
HOLDS(sizeof(nrdma_buffer) == 8);
HOLDS(sizeof(nrdma_context) == 8);
HOLDS(sizeof(nrdma_buffer_vtbl_itanium) == 13 * 8);
HOLDS(sizeof(nrdma_buffer_vtbl_msvc) == 13 * 8);
HOLDS(sizeof(nrdma_context_vtbl_itanium) == 9 * 8);
HOLDS(sizeof(nrdma_context_vtbl_msvc) == 9 * 8);

AT(nrdma_node_config, struct_size, 0);
AT(nrdma_node_config, name, 8);
AT(nrdma_node_config, host_id, 16);
AT(nrdma_node_config, worker_threads, 20);
AT(nrdma_node_config, transports, 24);
AT(nrdma_node_config, net_interface, 32);
AT(nrdma_node_config, auth_token, 40);
AT(nrdma_node_config, insecure, 48);
AT(nrdma_node_config, tls, 52);
AT(nrdma_node_config, cache_idle_bytes, 56);
AT(nrdma_node_config, heartbeat_ms, 64);
AT(nrdma_node_config, peer_timeout_ms, 68);
AT(nrdma_node_config, connect_timeout_ms, 72);
AT(nrdma_node_config, shutdown_timeout_ms, 76);
AT(nrdma_node_config, gpu_id_base, 80);
AT(nrdma_node_config, zero_copy, 84);
AT(nrdma_node_config, zero_on_reuse, 88);
HOLDS(sizeof(nrdma_node_config) == 96);

AT(nrdma_peer_info, host_id, 8);
AT(nrdma_peer_info, alive, 12);
AT(nrdma_peer_info, name, 16);
AT(nrdma_peer_info, address, 80);
AT(nrdma_peer_info, transport, 208);
AT(nrdma_peer_info, bytes_sent, 224);
AT(nrdma_peer_info, round_trip_ns, 256);
HOLDS(sizeof(nrdma_peer_info) == 264);

AT(nrdma_stats, cache_hits, 8);
AT(nrdma_stats, live_bytes, 40);
AT(nrdma_stats, bytes_mapped, 48);
AT(nrdma_stats, fragments_local, 80);
AT(nrdma_stats, threads, 120);
HOLDS(sizeof(nrdma_stats) == 128);

AT(nrdma_fragment, index, 8);
AT(nrdma_fragment, count, 16);
AT(nrdma_fragment, thread_id, 24);
AT(nrdma_fragment, host_id, 32);
AT(nrdma_fragment, attempt, 36);

AT(nrdma_result, index, 8);
AT(nrdma_result, count, 16);
AT(nrdma_result, size, 24);
AT(nrdma_result, host_id, 32);
AT(nrdma_result, attempt, 36);
AT(nrdma_result, sequence, 40);
AT(nrdma_result, flags, 44);
AT(nrdma_result, path, 48);
HOLDS(sizeof(nrdma_result) == 56);

AT(nrdma_job, user, 8);
AT(nrdma_job, class_id, 16);
AT(nrdma_job, payload, 32);
AT(nrdma_job, payload_size, 40);
AT(nrdma_job, mode, 48);
AT(nrdma_job, priority, 52);
AT(nrdma_job, abi, 56);
AT(nrdma_job, timeout_ms, 60);
AT(nrdma_job, thread_limit, 64);
AT(nrdma_job, flags, 72);
AT(nrdma_job, execute_fragment, 80);
AT(nrdma_job, get_result_buffer, 88);
AT(nrdma_job, receive_result, 96);
AT(nrdma_job, receive_bytes, 104);
AT(nrdma_job, assign_hosts, 112);
AT(nrdma_job, fragment_failed, 120);
AT(nrdma_job, cancel, 128);
HOLDS(sizeof(nrdma_job) == 136);

AT(nrdma_job_class, user, 8);
AT(nrdma_job_class, abi, 16);
AT(nrdma_job_class, create, 24);
AT(nrdma_job_class, execute_remote, 32);
AT(nrdma_job_class, execute_remote_bytes, 40);
AT(nrdma_job_class, cancel, 48);
AT(nrdma_job_class, destroy, 56);
HOLDS(sizeof(nrdma_job_class) == 64);

AT(nrdma_gpu_buffer_config, struct_size, 0);
AT(nrdma_gpu_buffer_config, api, 8);
AT(nrdma_gpu_buffer_config, frame_bytes, 16);
AT(nrdma_gpu_buffer_config, alignment, 32);
AT(nrdma_gpu_buffer_config, gpu_uuid, 48);
AT(nrdma_gpu_buffer_config, cuda_context, 56);
AT(nrdma_gpu_buffer_config, vk_get_instance_proc_addr, 88);
AT(nrdma_gpu_buffer_config, vk_queue_families, 104);
AT(nrdma_gpu_buffer_config, d3d12_device, 112);
HOLDS(sizeof(nrdma_gpu_buffer_config) == 128);

AT(nrdma_gpu_slot, address, 8);
AT(nrdma_gpu_slot, host, 32);
AT(nrdma_gpu_slot, native_offset, 56);
HOLDS(sizeof(nrdma_gpu_slot) == 64);

AT(nrdma_gpu_buffer_info, api, 8);
AT(nrdma_gpu_buffer_info, total_bytes, 40);
AT(nrdma_gpu_buffer_info, gpu_uuid, 64);
AT(nrdma_gpu_buffer_info, note, 80);
HOLDS(sizeof(nrdma_gpu_buffer_info) == 240);

AT(nrdma_gpu_export, handle, 8);
AT(nrdma_gpu_export, size, 24);
HOLDS(sizeof(nrdma_gpu_export) == 32);
