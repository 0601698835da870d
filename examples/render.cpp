// A C++ host: forked workers and this process render a picture in fragments; the results arrive in place.
// Buffers and contexts are mi::neuraylib's, called through their virtual tables.   render_cpp [FILE.ppm]
#include <nrdma/nrdma.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <complex>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int workers = 3, width = 1280, height = 720, rows = 40;  // A fragment is a band of 40 rows.
constexpr size_t band = size_t(width) * rows * 3;
constexpr nrdma_uuid band_class = {0x6b1f0c52, 0x4e3a91d7, 0x2c8d55aa, 0x10f7e6b3};

static void render(uint64_t index, uint8_t* out)
{
    for (int i = 0; i < width * rows; ++i, out += 3) {
        const std::complex<double> point((i % width - 0.7 * width) * 2.4 / height,
                                         (int(index) * rows + i / width - 0.5 * height) * 2.4 / height);
        std::complex<double> z = 0;
        int n = 0;
        for (; n < 400 && std::norm(z) < 64; ++n)
            z = z * z + point;
        const double turn = std::sqrt(n + 1 - std::log2(std::log(std::norm(z) + 2) / 2));
        for (int c = 0; c < 3; ++c)
            out[c] = n == 400 ? 0 : uint8_t(127.5 - 127.5 * std::cos(turn * (0.7 + 0.2 * c)));
    }
}

// The executing side renders into the memory that the other host reads.
static nrdma_status create(void*, const void*, uint64_t, void** replica)
{
    static char nothing;  // There is nothing to keep between fragments.
    return *replica = &nothing, NRDMA_OK;
}
static nrdma_status execute_remote(void*, const nrdma_fragment* f, nrdma_context* context, nrdma_buffer** result)
{
    mi::neuraylib::IRDMA_buffer* out = nrdma::to_interface(context)->get_write_memory(band);
    if (out != nullptr)
        render(f->index, out->get_data());
    *result = nrdma::to_c(out);  // With its reference.
    return out != nullptr ? NRDMA_OK : NRDMA_FRAGMENT_FAILED;
}

// The requesting side.
struct Picture {
    std::vector<uint8_t> pixels = std::vector<uint8_t>(size_t(width) * height * 3);
    std::atomic<int> received{0}, mapped{0};
};
static nrdma_status execute_here(void* user, const nrdma_fragment* f)
{
    render(f->index, static_cast<Picture*>(user)->pixels.data() + f->index * band);
    return NRDMA_OK;
}
static nrdma_buffer* get_result_buffer(void*, nrdma_context* context, uint64_t)
{
    return nrdma::to_c(nrdma::to_interface(context)->get_read_memory(band));
}
static nrdma_status receive_result(void* user, nrdma_buffer* buffer, const nrdma_result* result)
{
    auto* picture = static_cast<Picture*>(user);
    picture->received += 1;
    picture->mapped += result->path == NRDMA_PATH_MAPPED;
    std::memcpy(picture->pixels.data() + result->index * band, nrdma::to_interface(buffer)->get_data(), band);
    return NRDMA_OK;
}

static int fail(const char* what) { return std::fprintf(stderr, "%s: %s\n", what, nrdma_last_error()), 1; }

static int work(int go, int stop)  // Ends when the parent has closed its end of `stop`, or is gone.
{
    char address[256];
    nrdma_job_class job_class = {sizeof job_class, nullptr, NRDMA_CXX_ABI_HOST, 0, create, execute_remote, nullptr,
                                 nullptr, nullptr};
    nrdma::Node node;
    if (read(go, address, sizeof address) != sizeof address || node.create() != NRDMA_OK ||
        node.register_class(band_class, job_class) != NRDMA_OK || node.connect(address) != NRDMA_OK)
        return fail("worker");
    return read(stop, address, 1) == 0 ? 0 : 1;
}

int main(int argc, char** argv)
{
    int go[2], stop[2];
    if (pipe(go) != 0 || pipe(stop) != 0)
        return 1;
    for (int i = 0; i < workers; ++i)  // Before there is a node: threads do not survive a fork.
        if (fork() == 0)
            return close(go[1]), close(stop[1]), work(go[0], stop[0]);
    char address[256] = {};
    nrdma::Node node;
    if (node.create() != NRDMA_OK || node.listen("unix:", address, sizeof address) != NRDMA_OK)
        return fail("node");
    for (int i = 0; i < workers; ++i)
        if (write(go[1], address, sizeof address) != sizeof address)
            return fail("pipe");
    if (node.wait_peers(workers, 10000) != NRDMA_OK)
        return fail("workers");
    Picture picture;
    nrdma_job job = NRDMA_JOB_INIT;
    job.user = &picture;
    job.class_id = band_class;
    job.mode = NRDMA_CLUSTER;
    job.execute_fragment = execute_here;
    job.get_result_buffer = get_result_buffer;
    job.receive_result = receive_result;
    if (node.execute(job, height / rows) != NRDMA_OK)
        return fail("execute");
    std::printf("%d of %d bands from workers, %d in place\n", +picture.received, height / rows, +picture.mapped);
    close(stop[1]);
    while (wait(nullptr) > 0) {}
    std::FILE* file = std::fopen(argc > 1 ? argv[1] : "frame.ppm", "wb");
    const bool good = file && std::fprintf(file, "P6\n%d %d\n255\n", width, height) > 0 &&
                      std::fwrite(picture.pixels.data(), picture.pixels.size(), 1, file) == 1;
    return file && std::fclose(file) == 0 && good ? 0 : 1;
}
