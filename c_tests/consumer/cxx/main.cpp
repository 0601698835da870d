// A stranger's C++ program: a node and a buffer through neuray's interfaces.
#include <nrdma/nrdma.hpp>

#include <cstdio>
#include <cstring>

int main()
{
    nrdma::Node node;
    if (node.create() != NRDMA_OK) {
        std::fprintf(stderr, "%s\n", nrdma_last_error());
        return 1;
    }
    auto context = node.get_rdma_context(0);
    nrdma::Handle<mi::neuraylib::IRDMA_buffer> buffer(context->get_write_memory(1 << 20));
    if (!buffer) {
        std::fprintf(stderr, "%s\n", nrdma_last_error());
        return 1;
    }
    std::memset(buffer->get_data(), 7, buffer->get_size());
    return buffer->get_size() == 1 << 20 &&
                   dynamic_cast<mi::neuraylib::IRDMA_buffer*>(
                       static_cast<mi::base::IInterface*>(buffer.get())) == buffer.get()
               ? 0
               : 1;
}
