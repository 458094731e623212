/* edgeinfer/csrc/threads.h: a thread pool that runs a list of jobs, each cut into chunks. */
#ifndef EI_THREADS_H
#define EI_THREADS_H

#include "edgeinfer.h"

typedef struct ei_pool ei_pool;

/* Runs chunk number `chunk` of `op` on pool thread `thread` (0 is the caller of ei_pool_run). */
typedef void (*ei_chunk_fn)(void *context, const void *op, int32_t chunk, int32_t thread);

typedef struct {
    ei_chunk_fn run;
    const void *op;
    int32_t n_chunks; /* 0 or less: the job is skipped */
} ei_job;

/* A pool of n_threads, the caller of ei_pool_run included; fewer where the system refuses to make
   them. NULL: out of memory. */
ei_pool *ei_pool_new(int32_t n_threads);

int32_t ei_pool_size(const ei_pool *pool);

/* Let the runs that follow have n_threads members, the caller included; the others sleep. At first all take part. */
void ei_pool_use(ei_pool *pool, int32_t n_threads);

/* Run the jobs in order. Every chunk of a job ends before any chunk of the next begins, and sees
   what they wrote; the chunks of one job run in any order, on any thread. A non-zero *cancel skips
   the chunks not yet begun. Calls from several threads take turns; a chunk may not call it.
   Returns EI_OK, EI_CANCELLED, or EI_FORKED in a process forked after ei_pool_new. */
int32_t ei_pool_run(ei_pool *pool, void *context, const ei_job *jobs, int32_t n_jobs, const volatile int32_t *cancel);

/* Ends the threads; NULL is allowed, and so is a pool of the parent in a forked child. */
void ei_pool_free(ei_pool *pool);

/* The CPUs a cgroup quota allows, rounded to nearest and at least 1; 0 where there is no quota.
   `self` is the text file that lists this process's groups, `root` where they are mounted. */
int32_t ei_quota_cpus(const char *self, const char *root);

#endif
