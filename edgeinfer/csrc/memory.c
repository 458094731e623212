/* edgeinfer/csrc/memory.c: large zeroed allocations on huge pages where the system has them. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdint.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

static size_t rounded(size_t n) { return (n + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1); }

void *ei_big_alloc(size_t n_bytes, bool huge) {
    size_t n = rounded(n_bytes ? n_bytes : 1);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    if (n < n_bytes || n > SIZE_MAX - HUGE_PAGE) return NULL;
    char *raw = mmap(NULL, n + HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    char *aligned = (char *)rounded((size_t)raw);
    if (aligned > raw) munmap(raw, (size_t)(aligned - raw));
    if (aligned + n < raw + n + HUGE_PAGE) munmap(aligned + n, (size_t)(raw + HUGE_PAGE - aligned));
#ifdef MADV_HUGEPAGE
    madvise(aligned, n, huge && n_bytes >= HUGE_PAGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
    return aligned;
}

void ei_big_free(void *p, size_t n_bytes) {
    if (p) munmap(p, rounded(n_bytes ? n_bytes : 1));
}

void ei_release_mapped(const void *p, size_t n_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t start = ((uintptr_t)p + page - 1) & ~(uintptr_t)(page - 1);
    uintptr_t end = ((uintptr_t)p + n_bytes) & ~(uintptr_t)(page - 1);
    if (end > start) madvise((void *)start, end - start, MADV_DONTNEED);
}

#else
#include <stdlib.h>

void *ei_big_alloc(size_t n_bytes, bool huge) {
    (void)huge;
    return calloc(n_bytes ? n_bytes : 1, 1);
}

void ei_big_free(void *p, size_t n_bytes) {
    (void)n_bytes;
    free(p);
}

void ei_release_mapped(const void *p, size_t n_bytes) {
    (void)p;
    (void)n_bytes;
}
#endif

#ifdef __GLIBC__
#include <malloc.h>

void ei_return_freed(void) { malloc_trim(0); }
#else
void ei_return_freed(void) {}
#endif
