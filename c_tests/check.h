/* CHECK for plain C tests: no framework, so the same file runs under gcc, mingw and in QEMU. */
#ifndef NRDMA_CHECK_H
#define NRDMA_CHECK_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x), exit(1)))

/* For integers: shows both sides. */
#define CHECK_EQ(a, b) check_eq((long long)(a), (long long)(b), #a " == " #b, __FILE__, __LINE__)
static inline void check_eq(long long a, long long b, const char *what, const char *file, int line)
{
    if (a == b)
        return;
    fprintf(stderr, "%s:%d: %s: %lld, %lld\n", file, line, what, a, b);
    exit(1);
}

/* A test that cannot run here says why and ends with this; ctest counts it as skipped. */
#define CHECK_SKIP 77
#endif
