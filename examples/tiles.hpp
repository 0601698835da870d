// A DiCE job: the tiles of a frame. A fragment is a tile, which other hosts render straight into the memory
// that the requester reads. Compiles with nrdma's headers alone and, as it is, with NVIDIA's in their place.
#include <nrdma/nrdma.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <vector>

using namespace mi::neuraylib;
using mi::Float32, mi::Size, mi::Uint32, mi::Uint8;

struct Ball {
    Float32 x, y, z, radius, colour[3];
};

class Tiles : public Fragmented_job<0x7c41d90e, 0x35b2, 0x4f1a, 142, 96, 29, 147, 197, 42, 119, 180> {
public:
    Uint32 width = 0, height = 0, edge = 128;  // Of the frame and of a tile, in pixels.
    std::vector<Ball> balls;
    std::vector<Uint8> frame;  // RGB; from here on the requester's own.
    std::atomic<int> away{0};
    Scheduling_mode mode = CLUSTER;

    explicit Tiles(Uint32 w = 0, Uint32 h = 0) : width(w), height(h), frame(Size(w) * h * 3)
    {
        for (float i = 0; i < 90; ++i)
            balls.push_back({std::sin(i * 2.4f) * i / 110, std::cos(i * 2.4f) * i / 190, std::sin(i) / 4,
                             0.03f + i / 1500, {std::sin(i) / 2 + 0.5f, std::sin(i + 2) / 2 + 0.5f, 0.7f}});
    }
    Uint32 columns() const { return (width + edge - 1) / edge; }
    Size count() const { return Size(columns()) * ((height + edge - 1) / edge); }
    Size tile_bytes() const { return Size(edge) * edge * 3; }

    Scheduling_mode get_scheduling_mode() const override { return mode; }
    void serialize(ISerializer* to) const override
    {
        const Uint32 head[] = {width, height, edge, Uint32(balls.size())};
        if (!to->write(head, 4) || !to->write(&balls.data()->x, balls.size() * 7))
            throw std::length_error("the scene is too large to be sent");
    }
    void deserialize(IDeserializer* from) override
    {
        Uint32 head[4] = {};
        const bool sized = from->read(head, 4);
        width = head[0], height = head[1], edge = head[2];
        balls.resize(head[3]);
        if (!sized || !from->read(&balls.data()->x, balls.size() * 7))
            throw std::runtime_error("the scene is cut off");
    }
    // On the host that runs the job.
    void execute_fragment(IDice_transaction*, Size index, Size, const IJob_execution_context*) override
    {
        std::vector<Uint8> pixels(tile_bytes());
        render(index, pixels.data());
        place(index, pixels.data());
    }
    IRDMA_buffer* get_rdma_result_buffer(IRDMA_context* context, Size) override
    {
        return context->get_read_memory(tile_bytes());
    }
    void receive_remote_result_rdma(IRDMA_buffer* tile, IDice_transaction*, Size index, Size) override
    {
        place(index, tile->get_data());
        ++away;
    }
    // On every other host.
    IRDMA_buffer* execute_fragment_remote_rdma(IDice_transaction*, Size index, Size, IRDMA_context* context,
                                               const IJob_execution_context*) override
    {
        IRDMA_buffer* tile = context->get_write_memory(tile_bytes());
        if (tile == nullptr)
            throw std::runtime_error(nrdma_last_error());
        render(index, tile->get_data());
        return tile;
    }

private:
    void place(Size index, const Uint8* pixels)
    {
        const Size x = index % columns() * edge, y = index / columns() * edge;
        for (Size row = y; row < std::min<Size>(y + edge, height); ++row, pixels += edge * 3)
            std::copy_n(pixels, std::min<Size>(edge, width - x) * 3, &frame[(row * width + x) * 3]);
    }
    void render(Size index, Uint8* out) const  // With four samples for each pixel.
    {
        const Size left = index % columns() * edge, top = index / columns() * edge;
        for (Uint32 i = 0; i < edge * edge; ++i, out += 3) {
            float sum[3] = {};
            for (int s = 0; s < 4; ++s) {
                const float x = (float(left + i % edge) + float(s % 2) / 2 - 0.5f * float(width)) / float(height);
                const float y = (float(top + i / edge) + float(s / 2) / 2) / float(height) - 0.5f;
                float colour[3] = {0.06f + 0.1f * y, 0.09f + 0.1f * y, 0.15f + 0.1f * y}, nearest = -1e9f;
                for (const Ball& ball : balls) {
                    const float dx = (x - ball.x) / ball.radius, dy = (y - ball.y) / ball.radius;
                    const float rest = 1 - dx * dx - dy * dy, up = rest > 0 ? std::sqrt(rest) : 0;
                    if (rest <= 0 || ball.z + ball.radius * up <= nearest)
                        continue;
                    nearest = ball.z + ball.radius * up;
                    for (int c = 0; c < 3; ++c)
                        colour[c] = ball.colour[c] * std::max(0.1f, 0.7f * up - 0.4f * dx - 0.7f * dy);
                }
                for (int c = 0; c < 3; ++c)
                    sum[c] += colour[c] / 4;
            }
            for (int c = 0; c < 3; ++c)
                out[c] = Uint8(255 * std::sqrt(std::min(sum[c], 1.0f)));
        }
    }
};
