/* edgeinfer/csrc/sample_rank.c: put the best logits in order without sorting the vocabulary. */
#include <float.h>
#include <math.h>

#include "sample.h"

/* 2^11 counters of one pass fit in L1, and three passes cover the 32 bits of a logit. */
enum { RADIX_BITS = 11, RADIX = 1 << RADIX_BITS, FEW = 64 };

static inline uint64_t key_of(float x, int32_t id) {
    uint32_t u;
    x += 0.0f; /* -0 becomes +0: they are equal, so the lower id must win */
    memcpy(&u, &x, 4);
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~id;
}

static inline int32_t block_len(const ei_sampler *s, int32_t block) {
    int32_t left = s->n_vocab - block * EI_SCAN_LEN;
    return left < EI_SCAN_LEN ? left : EI_SCAN_LEN;
}

/* The maximum of n logits; false: NaN or +inf among them. */
static bool scan_block(const float *x, int32_t n, float *max) {
    float most = -INFINITY;
    bool nan = false;
    for (int32_t i = 0; i < n; i++) {
        most = x[i] > most ? x[i] : most;
        nan |= x[i] != x[i];
    }
    *max = most;
    return !nan && most < INFINITY;
}

bool ei_rank_scan(ei_sampler *s, const float *row) {
    s->row = row;
    int32_t n_whole = s->n_vocab / EI_SCAN_LEN;
    bool finite = s->wide ? ei_scan_wide(row, n_whole, s->block_max) : ei_scan(row, n_whole, s->block_max);
    if (n_whole < s->n_blocks)
        finite &= scan_block(row + n_whole * EI_SCAN_LEN, block_len(s, n_whole), &s->block_max[n_whole]);
    return finite;
}

void ei_rank_rescan(ei_sampler *s, int32_t id) {
    int32_t b = id / EI_SCAN_LEN;
    scan_block(s->row + b * EI_SCAN_LEN, block_len(s, b), &s->block_max[b]);
}

bool ei_rank_open(ei_sampler *s) {
    float top = -INFINITY;
    for (int32_t b = 0; b < s->n_blocks; b++) top = s->block_max[b] > top ? s->block_max[b] : top;
    s->top = (double)top;
    s->n_listed = EI_OPEN;
    return top > -INFINITY;
}

int32_t ei_rank_first(const ei_sampler *s) {
    float top = (float)s->top;
    int32_t b = 0;
    while (s->block_max[b] != top) b++;
    int32_t id = b * EI_SCAN_LEN;
    while (s->row[id] != top) id++;
    return id;
}

void ei_rank_from(ei_sampler *s, double bound) {
    double least = bound > -DBL_MAX ? bound : -DBL_MAX; /* a banned token is at -infinity */
    int32_t n = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        if (!((double)s->block_max[b] - s->top >= least)) continue;
        int32_t id = b * EI_SCAN_LEN, end = id + block_len(s, b);
        for (; id < end; id++) {
            s->keys[n] = key_of(s->row[id], id);
            n += (double)s->row[id] - s->top >= least;
        }
    }
    ei_rank_sort(s->keys, s->spare, n);
    s->n_listed = n;
}

void ei_rank_all(ei_sampler *s) { ei_rank_from(s, -DBL_MAX); }

/* Restore the min-heap order below `i`. */
static void sift(float *heap, int32_t n, int32_t i) {
    float x = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (!(heap[child] < x)) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

/* The k-th greatest block maximum: at least k logits reach it. */
static double kth_block_max(ei_sampler *s, int32_t k) {
    float *heap = (float *)s->weights;
    memcpy(heap, s->block_max, (size_t)k * sizeof *heap);
    for (int32_t i = k / 2; i >= 0; i--) sift(heap, k, i);
    for (int32_t b = k; b < s->n_blocks; b++)
        if (s->block_max[b] > heap[0]) {
            heap[0] = s->block_max[b];
            sift(heap, k, 0);
        }
    return (double)heap[0];
}

void ei_rank_top(ei_sampler *s, int32_t k) {
    if (k <= s->n_blocks)
        ei_rank_from(s, kth_block_max(s, k) - s->top);
    else
        ei_rank_all(s);
    if (s->n_listed > k) s->n_listed = k;
}

static void sort_few(uint64_t *keys, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        int32_t j = i;
        for (; j > 0 && keys[j - 1] < key; j--) keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* Sort descending. The low halves must be descending already: the passes are stable and leave the
   order of equal high halves alone. */
void ei_rank_sort(uint64_t *keys, uint64_t *spare, int32_t n) {
    if (n <= FEW) {
        sort_few(keys, n);
        return;
    }
    uint64_t *from = keys, *to = spare;
    for (int shift = 32; shift < 64; shift += RADIX_BITS) {
        int32_t starts[RADIX] = {0};
        for (int32_t i = 0; i < n; i++) starts[from[i] >> shift & (RADIX - 1)]++;
        for (int32_t d = RADIX - 1, sum = 0; d >= 0; d--) {
            int32_t count = starts[d];
            starts[d] = sum;
            sum += count;
        }
        for (int32_t i = 0; i < n; i++) to[starts[from[i] >> shift & (RADIX - 1)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    memcpy(keys, from, (size_t)n * sizeof *keys);
}
