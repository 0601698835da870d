/* What a test asks the fake CUDA driver beside the driver's own functions; by dlsym on the loaded library. */
#ifndef NRDMA_FAKE_CUDA_H
#define NRDMA_FAKE_CUDA_H

/* What is alive, and what was done wrong. */
typedef struct {
    int handles, maps, reservations, ctx_refs, contexts, streams, events, hostregs, fds, pending, violations;
    unsigned long long bytes, copies, flushes, calls;
} fakecuda_stats_t;

#ifdef __cplusplus
extern "C" {
#endif

void fakecuda_stats(fakecuda_stats_t *stats);
/* The k-th call from now of `symbol` ("*": of any) returns `code`; k = 0 forgets all faults. */
void fakecuda_fail(const char *symbol, unsigned k, int code);
/* The symbol whose call was last made to fail; "" if none was since the last fakecuda_fail. */
const char *fakecuda_failed(void);
/* Calls of a symbol so far; "*": of all. */
unsigned fakecuda_calls(const char *symbol);
/* The symbol of the n-th of all calls, of the last 65536. */
const char *fakecuda_symbol(unsigned n);
/* An attribute of all devices from now on; -1 is the default again. */
void fakecuda_set_attribute(int attribute, int value);
/* The CPU's way to the bytes of a device pointer, which cannot be touched itself: plays the card. */
void *fakecuda_alias(unsigned long long address);
/* How many contexts this thread has on its stack. */
int fakecuda_depth(void);

#ifdef __cplusplus
}
#endif
#endif
