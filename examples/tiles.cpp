// Worker processes and this one render a frame by the job in tiles.hpp.       tiles [FILE.ppm [ADDRESS]]
// ADDRESS is where they meet: "unix:" or host:port. On another host, start   tiles worker ADDRESS
#include "tiles.hpp"

#include <cstdio>
#include <string>

static int fail(const char* what) { return std::fprintf(stderr, "%s: %s\n", what, nrdma_last_error()), 1; }

int main(int argc, char** argv)
{
    char address[256] = {};
    nrdma::Node node;
    if (node.create() || nrdma::register_job<Tiles>(node))
        return fail("node");
    if (argc > 2 && std::string(argv[1]) == "worker")  // Until standard input ends.
        return node.connect(argv[2]) ? fail("connect") : std::getchar() != EOF;
    if (node.listen(argc > 2 ? argv[2] : "unix:", address, sizeof address))
        return fail("listen");
    std::FILE* workers[3];
    for (std::FILE*& worker : workers)
        worker = popen(("'" + std::string(argv[0]) + "' worker " + address).c_str(), "w");
    if (node.wait_peers(3, 20000))
        return fail("workers");
    nrdma::Handle<Tiles> job(new Tiles(1280, 720)), local(new Tiles(1280, 720));
    local->mode = Tiles::LOCAL;
    if (nrdma::execute(node, *job, job->count()) || nrdma::execute(node, *local, local->count()))
        return fail("execute");
    const bool same = job->frame == local->frame;
    std::printf("%d of %d tiles by workers, ", +job->away, int(job->count()));
    std::puts(same ? "verified" : "WRONG");
    for (std::FILE* worker : workers)
        pclose(worker);
    std::FILE* file = std::fopen(argc > 1 ? argv[1] : "tiles.ppm", "wb");
    const bool good = file && std::fprintf(file, "P6\n%u %u\n255\n", job->width, job->height) > 0 &&
                      std::fwrite(job->frame.data(), job->frame.size(), 1, file) == 1;
    return file && std::fclose(file) == 0 && good && same ? 0 : 1;
}
