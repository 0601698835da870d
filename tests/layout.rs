//! The structs of nrdma.h have the sizes and offsets that the library was compiled with: a C compiler checks.
// All of this is test: what is not there shall fail it.
#![allow(clippy::unwrap_used)]
use std::fmt::Write as _;
use std::path::Path;

use nrdma::abi::buffer::{nrdma_buffer, nrdma_buffer_vtbl_itanium, nrdma_buffer_vtbl_msvc};
use nrdma::abi::context::{nrdma_context, nrdma_context_vtbl_itanium, nrdma_context_vtbl_msvc};
use nrdma::abi::gpu_buffer::{nrdma_gpu_buffer_info, nrdma_gpu_export, nrdma_gpu_slot};
use nrdma::abi::gpu_config::nrdma_gpu_buffer_config;
use nrdma::abi::interface::nrdma_uuid;
use nrdma::abi::job::{nrdma_fragment, nrdma_job, nrdma_result};
use nrdma::abi::job_class::nrdma_job_class;
use nrdma::abi::node_config::nrdma_node_config;
use nrdma::abi::peer::nrdma_peer_info;
use nrdma::abi::stats::nrdma_stats;

/// One assertion for the size and one for each field.
macro_rules! assertions {
    ($out:ident, $($name:ident { $($field:ident),* })*) => { $(
        writeln!($out, "_Static_assert(sizeof({0}) == {1}, \"{0}\");", stringify!($name), size_of::<$name>()).unwrap();
        $(
            let at = std::mem::offset_of!($name, $field);
            writeln!($out, "_Static_assert(offsetof({0}, {1}) == {at}, \"{0}.{1}\");", stringify!($name), stringify!($field))
                .unwrap();
        )*
    )* };
}

fn compiles(name: &str, source: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&out).unwrap();
    let file = out.join("layout.c");
    std::fs::write(&file, source).unwrap();
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cargo_metadata(false).target(&triple).host(&triple).opt_level(0).out_dir(&out);
    build.include(root.join("include")).file(&file).std("c11");
    build.try_compile("layout").is_ok()
}

#[test]
fn structs_are_laid_out_as_in_the_header() {
    let mut source = String::from("#include <stddef.h>\n#include <nrdma/nrdma.h>\n");
    assertions! { source,
        nrdma_uuid { id1, id2, id3, id4 }
        nrdma_buffer { vtbl }
        nrdma_context { vtbl }
        nrdma_buffer_vtbl_itanium {
            retain, release, get_interface_const, get_interface, get_iid, get_id, get_gpu_id, get_data_const,
            get_data, get_size, duplicate_const, duplicate, is_gpudirect
        }
        nrdma_buffer_vtbl_msvc {
            retain, release, get_interface, get_interface_const, get_iid, get_id, get_gpu_id, get_data,
            get_data_const, get_size, duplicate, duplicate_const, is_gpudirect
        }
        nrdma_context_vtbl_itanium {
            retain, release, get_interface_const, get_interface, get_iid, get_write_memory, get_read_memory,
            wrap_user_buffer, flush
        }
        nrdma_context_vtbl_msvc {
            retain, release, get_interface, get_interface_const, get_iid, get_write_memory, get_read_memory,
            wrap_user_buffer, flush
        }
        nrdma_fragment { struct_size, index, count, thread_id, host_id, attempt }
        nrdma_result { struct_size, index, count, size, host_id, attempt, sequence, flags, path, reserved }
        nrdma_job {
            struct_size, user, class_id, payload, payload_size, mode, priority, abi, timeout_ms, thread_limit,
            flags, execute_fragment, get_result_buffer, receive_result, receive_bytes, assign_hosts,
            fragment_failed, cancel
        }
        nrdma_job_class {
            struct_size, user, abi, reserved, create, execute_remote, execute_remote_bytes, cancel, destroy
        }
        nrdma_node_config {
            struct_size, name, host_id, worker_threads, transports, net_interface, auth_token, insecure, tls,
            cache_idle_bytes, heartbeat_ms, peer_timeout_ms, connect_timeout_ms, shutdown_timeout_ms, gpu_id_base,
            zero_copy, zero_on_reuse, reserved
        }
        nrdma_peer_info {
            struct_size, host_id, alive, name, address, transport, bytes_sent, bytes_received, fragments_run,
            fragments_sent, round_trip_ns
        }
        nrdma_stats {
            struct_size, cache_hits, cache_misses, cache_idle_bytes, live_buffers, live_bytes, bytes_mapped,
            bytes_direct, bytes_staged, bytes_copied, fragments_local, fragments_remote, fragments_served,
            fragments_retried, peers, threads
        }
        nrdma_gpu_buffer_config {
            struct_size, api, slot_count, frame_bytes, memory, flags, alignment, exports, cuda_device, gpu_uuid,
            cuda_context, vk_instance, vk_physical_device, vk_device, vk_get_instance_proc_addr, vk_buffer_usage,
            vk_queue_family_count, vk_queue_families, d3d12_device, d3d12_creation_node_mask,
            d3d12_visible_node_mask
        }
        nrdma_gpu_slot { struct_size, address, size, gpu_va, host, native, native_memory, native_offset }
        nrdma_gpu_buffer_info {
            struct_size, api, memory, slot_count, flags, frame_bytes, stride, total_bytes, cuda_device,
            rdma_capable, needs_flush, reserved, gpu_uuid, note
        }
        nrdma_gpu_export { struct_size, handle, offset, size }
    }
    assert!(source.lines().count() > 100);
    assert!(compiles("right", &source), "the C compiler found another layout: see the assertions above");
    let wrong = source.replace("offsetof(nrdma_job, flags) == ", "offsetof(nrdma_job, flags) == 1 + ");
    assert_ne!(wrong, source);
    assert!(!compiles("wrong", &wrong), "the assertions do not assert");
}
