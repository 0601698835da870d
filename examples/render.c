/* A C host: a forked worker and this process fill a picture of rings in fragments.   render_c [FILE.pgm] */
#include <nrdma/nrdma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { edge = 1024, rows = 64, bands = edge / rows };
static const uint64_t band = (uint64_t)edge * rows;
static const nrdma_uuid rings = {0x2f60b7e1, 0x49c4d8a3, 0x7be2119d, 0x5c03f84e};

static void render(uint64_t index, uint8_t *out)
{
    for (uint64_t i = 0; i < band; ++i) {
        int64_t x = (int64_t)(i % edge) - edge / 2;
        int64_t y = (int64_t)(index * rows + i / edge) - edge / 2;
        out[i] = (uint8_t)((x * x + y * y) >> 7);
    }
}

/* The executing side: one replica for each job and host, made from the job's payload. */
static nrdma_status create(void *user, const void *payload, uint64_t size, void **replica)
{
    (void)user, (void)payload, (void)size;
    *replica = malloc(1);
    return *replica != NULL ? NRDMA_OK : NRDMA_OUT_OF_MEMORY;
}

static nrdma_status execute_remote(void *replica, const nrdma_fragment *fragment, nrdma_context *context,
                                   nrdma_buffer **result)
{
    (void)replica;
    *result = nrdma_context_get_write_memory(context, band, -1);
    if (*result == NULL)
        return NRDMA_FRAGMENT_FAILED;
    render(fragment->index, nrdma_buffer_get_data(*result));
    return NRDMA_OK;
}

static int worker(int pipe)
{
    char address[256];
    nrdma_node *node = NULL;
    nrdma_job_class job_class = {0};
    job_class.struct_size = sizeof job_class;
    job_class.abi = NRDMA_CXX_ABI_HOST;
    job_class.create = create;
    job_class.execute_remote = execute_remote;
    job_class.destroy = free;
    if (read(pipe, address, sizeof address) != (ssize_t)sizeof address || nrdma_node_create(NULL, &node) != NRDMA_OK ||
        nrdma_node_register_class(node, rings, &job_class) != NRDMA_OK ||
        nrdma_node_connect(node, address, NULL) != NRDMA_OK) {
        fprintf(stderr, "worker: %s\n", nrdma_last_error());
        return 1;
    }
    while (read(pipe, address, 1) > 0) {
    }
    nrdma_node_destroy(node);
    return 0;
}

/* The requesting side. */
static nrdma_status execute_here(void *user, const nrdma_fragment *fragment)
{
    render(fragment->index, (uint8_t *)user + fragment->index * band);
    return NRDMA_OK;
}

/* The picture is the host's own memory: the library writes each band to its place in it. */
static nrdma_buffer *get_result_buffer(void *user, nrdma_context *context, uint64_t index)
{
    return nrdma_context_wrap_user_buffer(context, (uint8_t *)user + index * band, band, -1);
}

static nrdma_status receive_result(void *user, nrdma_buffer *buffer, const nrdma_result *result)
{
    (void)user, (void)buffer;
    return result->size == band ? NRDMA_OK : NRDMA_FRAGMENT_FAILED;
}

static int requester(nrdma_node *node, uint8_t *picture)
{
    nrdma_stats stats = {0};
    nrdma_job job = NRDMA_JOB_INIT;
    job.user = picture;
    job.class_id = rings;
    job.mode = NRDMA_CLUSTER;
    job.execute_fragment = execute_here;
    job.get_result_buffer = get_result_buffer;
    job.receive_result = receive_result;
    stats.struct_size = sizeof stats;
    if (nrdma_node_wait_peers(node, 1, 10000) != NRDMA_OK || nrdma_node_execute(node, &job, bands) != NRDMA_OK ||
        nrdma_node_stats(node, &stats) != NRDMA_OK) {
        fprintf(stderr, "requester: %s\n", nrdma_last_error());
        return 1;
    }
    printf("%llu fragments here, %llu elsewhere\n", (unsigned long long)stats.fragments_local,
           (unsigned long long)stats.fragments_remote);
    return 0;
}

static int save(const char *path, const uint8_t *picture)
{
    FILE *file = fopen(path, "wb");
    int good = file != NULL && fprintf(file, "P5\n%d %d\n255\n", edge, edge) > 0 &&
               fwrite(picture, (size_t)band * bands, 1, file) == 1;
    return file != NULL && fclose(file) == 0 && good ? 0 : 1;
}

int main(int argc, char **argv)
{
    int ends[2], failed;
    char address[256] = {0};
    nrdma_node *node = NULL;
    uint8_t *picture = calloc(bands, (size_t)band);
    if (picture == NULL || pipe(ends) != 0)
        return 1;
    if (fork() == 0) { /* Before there is a node: threads do not survive a fork. */
        close(ends[1]);
        return worker(ends[0]);
    }
    if (nrdma_node_create(NULL, &node) != NRDMA_OK ||
        nrdma_node_listen(node, "unix:", address, sizeof address) != NRDMA_OK) {
        fprintf(stderr, "node: %s\n", nrdma_last_error());
        return 1;
    }
    if (write(ends[1], address, sizeof address) != (ssize_t)sizeof address)
        return 1;
    failed = requester(node, picture);
    close(ends[1]); /* The worker ends. */
    while (wait(NULL) > 0) {
    }
    nrdma_node_destroy(node);
    failed |= save(argc > 1 ? argv[1] : "frame.pgm", picture);
    free(picture);
    return failed;
}
