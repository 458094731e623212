/* tests/csrc/inputs.h: repeatable random values, and buffers that end at an unreadable page. */
#ifndef INPUTS_H
#define INPUTS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels.h"

static uint64_t random_state = 1;

static inline uint32_t random_u32(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static inline int32_t random_below(int32_t n) { return (int32_t)(random_u32() % (uint32_t)n); }

/* uniform in -1 .. 1 */
static inline float random_unit(void) { return (float)(int32_t)random_u32() * 0x1p-31f; }

static inline void random_fill(float *x, size_t n, float magnitude) {
    for (size_t i = 0; i < n; i++) x[i] = random_unit() * magnitude;
}

typedef struct {
    void *data, *map;
    size_t map_bytes;
} guarded;

/* The byte after data[bytes - 1] faults when it is read or written. */
static inline guarded guarded_new(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = body + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || mprotect((char *)g.map + body, page, PROT_NONE)) {
        perror("guarded_new");
        exit(2);
    }
    g.data = (char *)g.map + (body - bytes);
    return g;
}

static inline void guarded_free(guarded g) { munmap(g.map, g.map_bytes); }

/* The levels whose kernels are compared with the law: the one EDGEINFER_ISA names, or all this build and CPU have. */
static const char *const isa_names[] = {"scalar", "avx2", "avxvnni", "avx512", "neon", "i8mm"};
enum { N_ISA_NAMES = sizeof isa_names / sizeof *isa_names };

static inline const ei_kernels *kernels_to_test(int i) {
    const char *only = getenv("EDGEINFER_ISA");
    if (only && !ei_kernels_of(only)) {
        printf("EDGEINFER_ISA=%s: this build or CPU lacks it\n", only);
        exit(2);
    }
    return only && strcmp(only, isa_names[i]) ? NULL : ei_kernels_of(isa_names[i]);
}

static int n_failures;

/* Report the first failures of a run and count all. */
#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition) && ++n_failures <= 20) {                                                                      \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                                     \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

#endif
