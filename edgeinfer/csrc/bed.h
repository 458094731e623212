/* edgeinfer/csrc/bed.h: where threads sleep: a futex on `word`, or a condition variable where there is none. */
#ifndef EI_BED_H
#define EI_BED_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

enum { LINE = 128 }; /* two cache lines: x86 fetches them in pairs */

typedef struct {
    _Alignas(LINE) _Atomic uint32_t word;
    _Atomic int32_t n_asleep;
#ifndef __linux__
    pthread_mutex_t mutex;
    pthread_cond_t changed;
#endif
} bed;

static bool bed_make(bed *b) {
#ifndef __linux__
    if (pthread_mutex_init(&b->mutex, NULL)) return false;
    if (pthread_cond_init(&b->changed, NULL)) return pthread_mutex_destroy(&b->mutex), false;
#else
    (void)b;
#endif
    return true;
}

static void bed_unmake(bed *b) {
#ifndef __linux__
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
#else
    (void)b;
#endif
}

/* Sleep until the word is no longer `seen`. Returning early is allowed. */
static void bed_sleep(bed *b, uint32_t seen) {
#ifdef __linux__
    syscall(SYS_futex, (uint32_t *)&b->word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
#else
    pthread_mutex_lock(&b->mutex);
    while (atomic_load(&b->word) == seen) pthread_cond_wait(&b->changed, &b->mutex);
    pthread_mutex_unlock(&b->mutex);
#endif
}

/* Wake up to n sleepers. What they wait for was stored before with seq_cst: either this load sees
   the sleeper, or the sleeper, which re-reads after counting itself, sees the store. */
static void bed_wake(bed *b, int32_t n) {
    if (atomic_load(&b->n_asleep) == 0) return;
#ifdef __linux__
    atomic_fetch_add(&b->word, 1);
    syscall(SYS_futex, (uint32_t *)&b->word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
#else
    (void)n;
    pthread_mutex_lock(&b->mutex);
    atomic_fetch_add(&b->word, 1);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->mutex);
#endif
}

#endif
