/* Bytes that tell where they belong: a lost, torn, shifted or foreign byte shows. C11 and C++. */
#ifndef NRDMA_TEST_PATTERN_H
#define NRDMA_TEST_PATTERN_H
#include <stdint.h>

static inline uint8_t pattern_at(uint64_t seed, uint64_t i)
{
    return (uint8_t)(((i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xC2B2AE3D27D4EB4Full) >> 53);
}

static inline void pattern_fill(uint8_t *to, uint64_t size, uint64_t seed, uint64_t start)
{
    for (uint64_t i = 0; i < size; ++i)
        to[i] = pattern_at(seed, start + i);
}

/* The first byte that is wrong, or size. */
static inline uint64_t pattern_wrong(const uint8_t *from, uint64_t size, uint64_t seed, uint64_t start)
{
    for (uint64_t i = 0; i < size; ++i)
        if (from[i] != pattern_at(seed, start + i))
            return i;
    return size;
}

static inline int pattern_holds(const uint8_t *from, uint64_t size, uint64_t seed, uint64_t start)
{
    return pattern_wrong(from, size, seed, start) == size;
}

/* The first byte that is not `value`, or size. */
static inline uint64_t bytes_differ(const uint8_t *from, uint64_t size, uint8_t value)
{
    for (uint64_t i = 0; i < size; ++i)
        if (from[i] != value)
            return i;
    return size;
}
#endif
