// The job in tiles.hpp under MPI: every rank is a host, rank 0 runs the job.   mpirun -n 4 tiles_mpi [ADDRESS]
// MPI only starts the processes and carries addresses and a secret. ADDRESS is where ranks listen: 127.0.0.1:0
// by default; between machines an interface of theirs, ib0:0, or :0 for all.
#include <mpi.h>

#include "tiles.hpp"

#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>

static int fail(const char* what)  // Ends all ranks.
{
    std::fprintf(stderr, "%s: %s\n", what, nrdma_last_error());
    return MPI_Abort(MPI_COMM_WORLD, 1);
}

static int run(int rank, int ranks, const char* listen_at)
{
    char secret[65] = {}, address[256] = {};
    if (rank == 0) {  // What makes the ranks trust each other and nobody else.
        std::random_device random;
        for (int i = 0; i < 64; i += 8)
            std::snprintf(secret + i, 9, "%08x", random());
    }
    MPI_Bcast(secret, sizeof secret, MPI_CHAR, 0, MPI_COMM_WORLD);
    const std::string name = "rank " + std::to_string(rank);
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    config.name = name.c_str();
    config.auth_token = secret;
    nrdma::Node node;
    if (node.create(&config) || nrdma::register_job<Tiles>(node) ||
        node.listen(listen_at, address, sizeof address))
        return fail(name.c_str());
    std::vector<char> all(sizeof address * size_t(ranks));
    MPI_Gather(address, sizeof address, MPI_CHAR, all.data(), sizeof address, MPI_CHAR, 0, MPI_COMM_WORLD);
    bool same = true;
    if (rank == 0) {
        for (int other = 1; other < ranks; ++other)
            if (node.connect(&all[sizeof address * size_t(other)]))
                return fail("connect");
        nrdma::Handle<Tiles> job(new Tiles(1280, 720)), local(new Tiles(1280, 720));
        local->mode = Tiles::LOCAL;
        if (nrdma::execute(node, *job, job->count()) || nrdma::execute(node, *local, local->count()))
            return fail("execute");
        same = job->frame == local->frame;
        std::printf("%d of %d tiles by %d other ranks, %s\n", +job->away, int(job->count()), ranks - 1,
                    same ? "verified" : "WRONG");
    }
    // Until all are done. MPI's own barrier would spin on a processor that the fragments need.
    MPI_Request barrier;
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    for (int done = 0; !done; MPI_Test(&barrier, &done, MPI_STATUS_IGNORE))
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return same ? 0 : 1;
}

int main(int argc, char** argv)
{
    int rank = 0, ranks = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int status = run(rank, ranks, argc > 1 ? argv[1] : "127.0.0.1:0");
    MPI_Finalize();
    return status;
}
