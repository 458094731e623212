/* tests/csrc/test_guard.c: what cannot be read of a map is zeros and a mark, again and again, in any thread. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "edgeinfer.h"

#define CHECK(x)                                                                                                       \
    do {                                                                                                               \
        if (!(x)) {                                                                                                    \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #x);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { N_PAGES = 64, N_THREADS = 4 };
static size_t page;

static void *sum_of(void *map) {
    size_t sum = 0;
    for (size_t i = 0; i < N_PAGES * page; i++) sum += ((volatile unsigned char *)map)[i];
    return (void *)sum;
}

static unsigned char *mapped(int file) {
    unsigned char *map = mmap(NULL, N_PAGES * page, PROT_READ, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    return map;
}

int main(void) {
    char name[] = "/tmp/test_guard_XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0);
    unlink(name);
    page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *ones = malloc(page);
    memset(ones, 1, page);

    for (int round = 0; round < 3; round++) {
        CHECK(ftruncate(file, 0) == 0);
        for (int i = 0; i < N_PAGES; i++) CHECK(pwrite(file, ones, page, (off_t)i * (off_t)page) == (ssize_t)page);
        unsigned char *map = mapped(file), *first_half = mapped(file);
        int32_t number = ei_guard(map, N_PAGES * page), half = ei_guard(first_half, N_PAGES / 2 * page);
        CHECK(number >= 0 && half >= 0 && number != half);
        CHECK((size_t)sum_of(map) == N_PAGES * page && !ei_guard_is_lost(number));

        CHECK(ftruncate(file, (off_t)(N_PAGES / 2 * page)) == 0);
        pthread_t threads[N_THREADS];
        for (int i = 0; i < N_THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, sum_of, map));
        for (int i = 0; i < N_THREADS; i++) {
            void *sum;
            CHECK(!pthread_join(threads[i], &sum) && (size_t)sum == N_PAGES / 2 * page);
        }
        CHECK(first_half[N_PAGES / 2 * page - 1] == 1);
        CHECK(ei_guard_is_lost(number) && !ei_guard_is_lost(half));
        ei_unguard(number);
        ei_unguard(half);
        CHECK(!munmap(map, N_PAGES * page) && !munmap(first_half, N_PAGES * page));
    }

    int32_t n = 0, last = -1;
    while ((last = ei_guard(ones, 1)) >= 0) n++;
    CHECK(n == 1024 && ei_guard(ones, 0) == -1 && !ei_guard_is_lost(-1));
    for (int32_t i = 0; i < n; i++) ei_unguard(i);
    CHECK(ei_guard(ones, 1) == 0);
    ei_unguard(0);
    ei_unguard(-1);
    free(ones);
    close(file);
    puts("guard: ok");
    return 0;
}
