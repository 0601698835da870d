/* One process, one nrdma.dll, modules of two C++ ABIs: both run their jobs, also at the same time, and a job of one is
   executed by replicas of the other. both A.dll B.dll */
#include <nrdma/nrdma.h>

#include <windows.h>

#include "../check.h"

typedef struct module {
    int (*run)(void);
    int (*enroll)(nrdma_node *);
    int (*execute)(nrdma_node *, unsigned);
} module;

static module load(const char *file)
{
    module m;
    HMODULE dll = LoadLibraryA(file);
    if (dll == NULL)
        fprintf(stderr, "%s: error %lu\n", file, GetLastError());
    CHECK(dll != NULL);
    FARPROC functions[] = {GetProcAddress(dll, "suite_run"), GetProcAddress(dll, "suite_register"),
                           GetProcAddress(dll, "suite_execute")};
    memcpy(&m, functions, sizeof m);
    CHECK(m.run != NULL && m.enroll != NULL && m.execute != NULL);
    return m;
}

static DWORD WINAPI run(void *arg) { return (DWORD)((module *)arg)->run(); }

static nrdma_node *open_node(uint32_t host, const char *engine)
{
    nrdma_node_config config = NRDMA_NODE_CONFIG_INIT;
    nrdma_node *node = NULL;
    config.host_id = host;
    config.worker_threads = 2;
    config.transports = engine;
    CHECK_EQ(nrdma_node_create(&config, &node), NRDMA_OK);
    return node;
}

/* The job is `from`'s, what runs it elsewhere is `to`'s. */
static void across(module *from, module *to, const char *engine)
{
    nrdma_node *a = open_node(1, engine), *b = open_node(2, engine);
    char bound[128];
    uint32_t host;
    CHECK_EQ(nrdma_node_listen(b, "127.0.0.1:0", bound, sizeof bound), NRDMA_OK);
    CHECK_EQ(nrdma_node_connect(a, bound, &host), NRDMA_OK);
    CHECK_EQ(from->enroll(a), 0);
    CHECK_EQ(to->enroll(b), 0);
    CHECK_EQ(from->execute(a, 40), 0);
    CHECK_EQ(from->execute(a, 41), 0);
    CHECK_EQ(nrdma_node_shutdown(a, 0), NRDMA_OK);
    CHECK_EQ(nrdma_node_shutdown(b, 0), NRDMA_OK);
    nrdma_node_destroy(a);
    nrdma_node_destroy(b);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    module first = load(argv[1]), second = load(argv[2]);
    /* By its name: this process must have one. */
    CHECK(GetModuleHandleA("nrdma.dll") != NULL);
    CHECK_EQ(first.run(), 0);
    CHECK_EQ(second.run(), 0);
    HANDLE threads[2] = {CreateThread(NULL, 0, run, &first, 0, NULL), CreateThread(NULL, 0, run, &second, 0, NULL)};
    CHECK_EQ(WaitForMultipleObjects(2, threads, TRUE, 60000), WAIT_OBJECT_0);
    for (int i = 0; i < 2; ++i) {
        DWORD failures = 1;
        CHECK(GetExitCodeThread(threads[i], &failures) && failures == 0);
        CloseHandle(threads[i]);
    }
    static const char *const engines[] = {"inproc", "tcp"};
    for (int i = 0; i < 2; ++i) {
        across(&first, &second, engines[i]);
        across(&second, &first, engines[i]);
    }
    puts("both ran");
    return 0;
}
