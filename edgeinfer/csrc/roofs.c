/* edgeinfer/csrc/roofs.c: what the machine can do at most: bytes read and numbers multiplied a second. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "edgeinfer.h"
#include "kernels.h"
#include "memory.h"
#include "threads.h"

#include <stdlib.h>
#include <time.h>

enum {
    STREAM_PIECE = 1 << 20, /* bytes of one stream in one chunk */
    STREAM_PASSES = 3,
    STREAM_AHEAD = 512, /* bytes fetched ahead of the read */
    MOST_STREAMS = 8,
    PEAK_CHUNKS_PER_THREAD = 16,
    PEAK_TURNS = 1 << 15,
    PEAK_PASSES = 10
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    uint8_t *memory;
    size_t stride;     /* from one stream to the next */
    int32_t n_streams; /* walked in lockstep by a chunk */
} stream;

EI_INLINE void read_streams(const uint8_t *p, size_t stride, int n_streams) {
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < STREAM_PIECE; i += 64)
        for (int s = 0; s < n_streams; s++) {
            const uint64_t *words = (const uint64_t *)(p + (size_t)s * stride + i);
            __builtin_prefetch((const uint8_t *)words + STREAM_AHEAD);
            for (int j = 0; j < 8; j++) sum[j] += words[j];
        }
    for (int j = 0; j < 8; j++) __asm__ volatile("" : : "r"(sum[j]));
}

static void fill_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    const stream *s = context;
    (void)op, (void)thread;
    memset(s->memory + (size_t)chunk * STREAM_PIECE, 1, STREAM_PIECE); /* so that every page exists */
}

static void stream_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    const stream *s = context;
    (void)op, (void)thread;
    const uint8_t *p = s->memory + (size_t)chunk * STREAM_PIECE;
    if (s->n_streams == 1)
        read_streams(p, 0, 1);
    else if (s->n_streams == 4)
        read_streams(p, s->stride, 4);
    else
        read_streams(p, s->stride, MOST_STREAMS);
}

/* Chunk c reads piece c of each of n_streams equal parts of the memory. */
static double best_of_streams(ei_pool *pool, stream *s, int32_t n_pieces, int32_t n_streams) {
    int32_t n_chunks = n_pieces / n_streams;
    s->n_streams = n_streams, s->stride = (size_t)n_chunks * STREAM_PIECE;
    double best = 0;
    for (int i = 0; i < STREAM_PASSES; i++) {
        ei_job read = {stream_chunk, NULL, n_chunks};
        double start = seconds();
        ei_pool_run(pool, s, &read, 1, NULL);
        best = fmax(best, (double)n_chunks * n_streams * STREAM_PIECE / (seconds() - start));
    }
    return best;
}

double ei_stream_rate(int32_t n_threads, size_t n_bytes) {
    static const int32_t ways[] = {1, 4, MOST_STREAMS};
    int32_t n_pieces = (int32_t)(n_bytes / STREAM_PIECE);
    ei_pool *pool = ei_pool_new(n_threads);
    stream s = {.memory = pool && n_pieces > 0 ? ei_big_alloc(n_bytes, true) : NULL};
    double best = 0;
    if (s.memory) {
        ei_job fill = {fill_chunk, NULL, n_pieces};
        ei_pool_run(pool, &s, &fill, 1, NULL);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            best = fmax(best, best_of_streams(pool, &s, n_pieces, ways[i]));
        ei_big_free(s.memory, n_bytes);
    }
    ei_pool_free(pool);
    return best;
}

typedef struct {
    const ei_kernels *kernels;
    int32_t kind;
    int64_t n_macs;
} peak;

static void peak_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    peak *p = context;
    (void)op, (void)chunk, (void)thread;
    __atomic_fetch_add(&p->n_macs, p->kernels->peak(p->kind, PEAK_TURNS), __ATOMIC_RELAXED);
}

double ei_peak_rate(const char *isa, int32_t n_threads, int32_t kind) {
    peak p = {.kernels = ei_kernels_of(isa), .kind = kind};
    if (!p.kernels || kind < EI_PEAK_INT8 || kind > EI_PEAK_F32) return 0;
    ei_pool *pool = ei_pool_new(n_threads);
    double best = 0;
    for (int i = 0; pool && i < PEAK_PASSES; i++) {
        ei_job job = {peak_chunk, NULL, ei_pool_size(pool) * PEAK_CHUNKS_PER_THREAD};
        p.n_macs = 0;
        double start = seconds();
        ei_pool_run(pool, &p, &job, 1, NULL);
        best = fmax(best, (double)p.n_macs / (seconds() - start));
    }
    ei_pool_free(pool);
    return best;
}
