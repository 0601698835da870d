// Every inline function of nrdma.hpp, used once.
#include <nrdma/nrdma.hpp>
#include <nrdma/nrdma.hpp>

using mi::neuraylib::IRDMA_buffer;
using mi::neuraylib::IRDMA_context;

// A job from the mixin, and one of the host's own that has only what it must.
class Real : public mi::neuraylib::Fragmented_job<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11> {
public:
    void execute_fragment(mi::neuraylib::IDice_transaction*, mi::Size, mi::Size,
                          const mi::neuraylib::IJob_execution_context*) override
    {
    }
};
struct Plain {
    mi::base::Uuid get_class_id() const { return {1, 2, 3, 4}; }
    void execute_fragment(mi::neuraylib::IDice_transaction*, mi::Size, mi::Size,
                          const mi::neuraylib::IJob_execution_context*)
    {
    }
};

int use_jobs(nrdma::Node& node)
{
    nrdma::Handle<Real> real(new Real);
    Plain plain;
    int status = nrdma::register_job<Real>(node) | nrdma::register_job<Plain>(node.get());
    status |= node.register_serializable_class<Real>();
    status |= node.register_serializable_class(Real::IID(), nullptr);
    status |= nrdma::execute(node, *real.get(), 1) | nrdma::execute(node.get(), plain, 1);
    status |= node.execute_fragmented(real.get(), 1) | node.execute_fragmented_async(real.get(), 1);
    nrdma::Handle<mi::neuraylib::IScheduler> scheduler(node.get_scheduler());
    nrdma::Handle<mi::neuraylib::IDice_configuration> settings(node.get_dice_configuration());
    return status | (scheduler && settings ? 0 : 1);
}

int use(const nrdma_job& job, const nrdma_job_class& job_class)
{
    nrdma::Node node;
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    int status = node.create(&config);
    nrdma::Node other(static_cast<nrdma::Node&&>(node));
    node = static_cast<nrdma::Node&&>(other);
    char bound[128];
    uint32_t host = 0;
    uint64_t n = 0;
    nrdma_stats stats;
    nrdma_peer_info info[2];
    status |=
        node.listen("unix:/run/x", bound, sizeof bound) | node.connect(bound, &host) | node.connect(bound);
    status |= node.wait_peers(1, 1000) | node.peers(info, 2, &n) | node.stats(stats) | node.trim(0);
    status |= node.set_peer_callback(nullptr, nullptr);
    status |= node.register_class(IRDMA_buffer::IID(), job_class);
    status |= node.register_class(nrdma_uuid NRDMA_IID_RDMA_BUFFER, job_class);
    status |= node.unregister_class(IRDMA_buffer::IID(), 0);
    status |= node.unregister_class(nrdma_uuid NRDMA_IID_RDMA_BUFFER, 0);
    status |= node.execute(job, 1) | node.execute_async(job, 1, nullptr, &n) | node.cancel(n);
    nrdma::Handle<IRDMA_context> context(node.get_rdma_context(node.host_id()));
    if (!context || !node)
        return 1;
    nrdma::Handle<IRDMA_buffer> buffer(context->get_write_memory(1));
    const IRDMA_buffer* seen = buffer.get();
    const IRDMA_context* same = context.get();
    status |=
        nrdma::to_interface(nrdma::to_c(seen)) != seen || nrdma::to_interface(nrdma::to_c(same)) != same;
    status |= nrdma::to_interface(nrdma::to_c(buffer.get())) != buffer.get();
    status |= nrdma::to_interface(nrdma::to_c(context.get())) != context.get();
    status |= nrdma::to_uuid(nrdma::to_c(context->get_iid())) != context->get_iid();
    status |= node.disconnect(host) | node.shutdown();
    nrdma_node* left = node.release();
    node.reset(left);
    return status | (node.get() == nullptr);
}

bool lock(void*, std::size_t) { return true; }
void unlock(void*, std::size_t) {}

int use_slots(void* device)
{
    nrdma::Gpu_buffer_config config{nrdma::Gpu_api::Cuda, 3, 1000};
    config.memory = nrdma::Gpu_memory::Vmm;
    config.vulkan.device = device;
    nrdma::Gpu_buffer slots;
    int status = slots.create(config) ? 0 : slots.status();
    nrdma::Gpu_buffer other(static_cast<nrdma::Gpu_buffer&&>(slots));
    slots = static_cast<nrdma::Gpu_buffer&&>(other);
    nrdma_gpu_export handle = NRDMA_GPU_EXPORT_INIT;
    status |= slots.exportHandle(0, NRDMA_EXPORT_FD, handle) | slots.flush();
    status |= slots.write(0, 0, device, 1) | slots.read(0, 0, device, 1);
    nrdma::Gpu_pins<bool (*)(void*, std::size_t), void (*)(void*, std::size_t)> pins(slots, lock, unlock);
    pins.release();
    slots.swap(other);
    slots.destroy();
    return status | (pins ? 1 : 0) | (slots.valid() && slots.get() != nullptr ? 1 : 0) |
           static_cast<int>(slots.find(slots.slot(slots.slotCount()).gpuVA)) | slots.info().memory |
           (slots.backend() == nrdma::Gpu_api{} ? 0 : 1);
}
