/* Bounds a test program: a thread that names the case which hangs, and ends the process. C11 and C++. */
#ifndef NRDMA_TEST_WATCH_H
#define NRDMA_TEST_WATCH_H
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One test program is one translation unit, or includes this from one header only: static is enough there,
   and the shared state of several units comes from watch_state(). */
typedef struct watch_state {
    pthread_mutex_t lock;
    char name[128];
    double case_end;
    double program_end;
    void (*cleanup)(void);
} watch_state;

static inline double watch_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline void watch_sleep_ms(unsigned ms)
{
    struct timespec t;
    t.tv_sec = (time_t)(ms / 1000);
    t.tv_nsec = (long)(ms % 1000) * 1000000L;
    nanosleep(&t, NULL);
}

/* Slow runs (valgrind, sanitizers) stretch every limit. */
static inline double watch_stretch(void)
{
    const char *text = getenv("NRDMA_TEST_SLOW");
    double factor = text ? atof(text) : 1.0;
    return factor < 1.0 ? 1.0 : factor;
}

static void *watch_run(void *arg)
{
    watch_state *state = (watch_state *)arg;
    for (;;) {
        watch_sleep_ms(100);
        pthread_mutex_lock(&state->lock);
        double now = watch_now();
        if (now > state->case_end || now > state->program_end) {
            if (now > state->case_end)
                fprintf(stderr, "\nHANG: \"%s\" did not end in time\n", state->name);
            else
                fprintf(stderr, "\nSLOW: the whole program did not end in time; it was at \"%s\"\n", state->name);
            if (state->cleanup)
                state->cleanup();
            _exit(1);
        }
        pthread_mutex_unlock(&state->lock);
    }
    return NULL;
}

/* Starts the clock of the whole program. */
static inline void watch_start(watch_state *state, double program_seconds, void (*cleanup)(void))
{
    pthread_t thread;
    memset(state, 0, sizeof *state);
    pthread_mutex_init(&state->lock, NULL);
    snprintf(state->name, sizeof state->name, "start");
    state->program_end = watch_now() + program_seconds * watch_stretch();
    state->case_end = state->program_end;
    state->cleanup = cleanup;
    if (pthread_create(&thread, NULL, watch_run, state) != 0) {
        fprintf(stderr, "no watchdog thread\n");
        exit(1);
    }
    pthread_detach(thread);
}

/* Names what runs now and gives it its own limit. */
static inline void watch_case(watch_state *state, const char *name, double seconds)
{
    pthread_mutex_lock(&state->lock);
    snprintf(state->name, sizeof state->name, "%s", name);
    state->case_end = watch_now() + seconds * watch_stretch();
    pthread_mutex_unlock(&state->lock);
}

#ifdef __cplusplus
}
#endif
#endif
