/* edgeinfer/csrc/threads.c: the ticket pool, which keeps working when a core is taken away.

   One 64-bit ticket = (job number << 32 | chunks left) hands out the chunks of the current job; a
   thread claims one by a compare-and-swap that takes 1 off. Job number and count travel together,
   so a thread that slept through a change of job can claim nothing of the wrong one, and having
   claimed keeps the job's fields still until it has finished. Whoever finishes the last chunk of a
   job publishes the next: nobody has to check in at a barrier, and the caller, an ordinary member,
   runs everything itself when no other thread gets a CPU. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "bed.h"
#include "fp_state.h"
#include "threads.h"

enum {
    MAX_THREADS = 1024,
    SPIN_NS = 50000,          /* the price of a futex wake-up: spinning longer can only lose */
    INTERRUPTED_NS = 1000000, /* longer than chunks take: somebody else had the CPU */
    SHARED_NS = 100000000,    /* for how long that is remembered */
    LEAST_TURN_NS = 1000000,  /* between two interruptions, for reckoning */
    MOST_TURN_NS = 4000000,
    IDLE_NS = 1000000, /* after this the kernel may wake a worker on its waker's CPU */
    PAUSES_PER_LOOK = 32
};

typedef struct {
    _Alignas(LINE) ei_pool *pool;
    pthread_t handle;
    int32_t index;
    _Atomic int32_t tid;      /* the kernel's id, 0 until the thread has started */
    _Atomic int32_t narrowed; /* its affinity was narrowed for a wake-up and is to be restored */
    /* only the thread itself reads and writes these */
    int64_t shared_until_ns; /* another process is taken to share its CPU until then */
    int64_t turn_ns;         /* since when it has had the CPU */
    int64_t run_ns;          /* how long of a turn it uses */
    int64_t looked_ns;       /* when it last looked at the clock: before its chunk */
} worker;

struct ei_pool {
    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) _Atomic int32_t unfinished; /* chunks of the current job not yet ended */
    _Alignas(LINE) ei_job job;                 /* the current one; still while a chunk is claimed */
    void *context;
    const ei_job *jobs; /* of this run; with next_job and job_number only whoever publishes */
    int32_t n_jobs, next_job;
    uint32_t job_number;
    const volatile int32_t *cancel;
    _Atomic int32_t cancelled;
    _Alignas(LINE) _Atomic uint32_t runs_done;
    _Atomic int32_t quit;
    _Atomic int32_t n_active; /* members that take part; those above it sleep in their own bed */
    bed workers_bed, reserve_bed, caller_bed;
    int32_t n_threads;
    pid_t pid;
    int64_t last_end_ns;
    pthread_mutex_t turn;
#ifdef __linux__
    cpu_set_t inherited;
    int32_t n_cpus; /* in the inherited mask; 0: unknown */
#endif
    worker *workers; /* of entry 0, the caller's, only the turns are used */
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield is a no-op on most cores; isb waits tens of cycles */
#endif
}

/* -- members ---------------------------------------------------------------------------------- */

static inline int32_t n_active(ei_pool *pool) { return atomic_load_explicit(&pool->n_active, memory_order_relaxed); }

/* The kernel often wakes a worker of an idle pool on its waker's own CPU, where it waits for
   milliseconds: keep it off that CPU until it runs its first chunk. */
static void narrow_affinity(ei_pool *pool) {
#ifdef __linux__
    if (pool->n_cpus < 2) return;
    int cpu = sched_getcpu();
    cpu_set_t others = pool->inherited;
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &others)) return;
    CPU_CLR(cpu, &others);
    for (int32_t i = 1; i < n_active(pool) && i < pool->n_cpus; i++) {
        worker *w = &pool->workers[i];
        int32_t tid = atomic_load_explicit(&w->tid, memory_order_relaxed);
        if (tid && sched_setaffinity(tid, sizeof others, &others) == 0)
            atomic_store_explicit(&w->narrowed, 1, memory_order_release);
    }
#else
    (void)pool;
#endif
}

static inline void restore_affinity(ei_pool *pool, int32_t thread) {
#ifdef __linux__
    if (thread == 0) return;
    worker *w = &pool->workers[thread];
    if (atomic_load_explicit(&w->narrowed, memory_order_acquire) == 0) return;
    atomic_store_explicit(&w->narrowed, 0, memory_order_relaxed);
    sched_setaffinity(0, sizeof pool->inherited, &pool->inherited);
#else
    (void)pool, (void)thread;
#endif
}

/* -- handing out chunks ----------------------------------------------------------------------- */

static inline bool is_cancelled(ei_pool *pool) {
    if (atomic_load_explicit(&pool->cancelled, memory_order_relaxed)) return true;
    if (!pool->cancel || !__atomic_load_n(pool->cancel, __ATOMIC_RELAXED)) return false;
    atomic_store_explicit(&pool->cancelled, 1, memory_order_relaxed);
    return true;
}

static void run_whole(ei_pool *pool, const ei_job *job, int32_t thread) {
    for (int32_t i = 0; i < job->n_chunks && !is_cancelled(pool); i++) job->run(pool->context, job->op, i, thread);
}

/* Publish the next job, or end the run. Jobs too small to share are run here. */
static void advance(ei_pool *pool, int32_t thread) {
    while (pool->next_job < pool->n_jobs && !is_cancelled(pool)) {
        const ei_job *job = &pool->jobs[pool->next_job++];
        if (job->n_chunks <= 1 || n_active(pool) == 1) {
            run_whole(pool, job, thread);
            continue;
        }
        int32_t n_chunks = job->n_chunks; /* once published, the caller's list may be gone */
        pool->job = *job;
        atomic_store_explicit(&pool->unfinished, n_chunks, memory_order_relaxed);
        atomic_store(&pool->ticket, (uint64_t)++pool->job_number << 32 | (uint32_t)n_chunks);
        bed_wake(&pool->workers_bed, n_chunks - 1);
        if (thread != 0) bed_wake(&pool->caller_bed, 1);
        return;
    }
    atomic_fetch_add(&pool->runs_done, 1);
    if (thread != 0) bed_wake(&pool->caller_bed, 1);
}

/* Take every chunk that is left, so that nobody runs it. */
static int32_t claim_rest(ei_pool *pool, uint64_t ticket) {
    while ((uint32_t)ticket != 0)
        if (atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket >> 32 << 32)) return (int32_t)(uint32_t)ticket;
    return 0;
}

/* Another process shares this thread's CPU if a chunk takes INTERRUPTED_NS. Everybody then waits for the chunk that was
   held, several milliseconds. So from then on the thread offers its CPU by itself, between two chunks, shortly before
   the system would take it: nobody waits, the others run all the chunks until it comes back. To offer it earlier would
   give away the rest of each turn. */
static inline void make_way(worker *self) {
    int64_t now = now_ns(), before = self->looked_ns;
    self->looked_ns = now;
    if (now - before > INTERRUPTED_NS) {
        int64_t ran = before - self->turn_ns;
        ran = ran < LEAST_TURN_NS ? LEAST_TURN_NS : ran > MOST_TURN_NS ? MOST_TURN_NS : ran;
        self->run_ns += (ran * 3 / 4 - self->run_ns) / 4;
        self->turn_ns = now;
        self->shared_until_ns = now + SHARED_NS;
        return;
    }
    if (now >= self->shared_until_ns || now - self->turn_ns < self->run_ns) return;
    sched_yield();
    self->turn_ns = self->looked_ns = now_ns();
    if (self->turn_ns - now > INTERRUPTED_NS) self->shared_until_ns = self->turn_ns + SHARED_NS;
}

/* Run one chunk of the current job if one is left. A member that was active a moment ago may still claim one. */
static bool work(ei_pool *pool, int32_t thread) {
    if (thread >= n_active(pool)) return false;
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    do {
        if ((uint32_t)ticket == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                                    memory_order_acquire));
    int32_t n_ended = 1;
    restore_affinity(pool, thread);
    if (is_cancelled(pool))
        n_ended += claim_rest(pool, ticket - 1);
    else
        pool->job.run(pool->context, pool->job.op, pool->job.n_chunks - (int32_t)(uint32_t)ticket, thread);
    if (atomic_fetch_sub_explicit(&pool->unfinished, n_ended, memory_order_acq_rel) == n_ended) advance(pool, thread);
    make_way(&pool->workers[thread]);
    return true;
}

static bed *bed_of(ei_pool *pool, int32_t thread) {
    if (thread == 0) return &pool->caller_bed;
    return thread < atomic_load(&pool->n_active) ? &pool->workers_bed : &pool->reserve_bed;
}

/* Whether a thread that sleeps in this bed has nothing to do: no chunk to claim, and no reason to leave. */
static bool must_wait(ei_pool *pool, const bed *b, uint32_t run) {
    if (b != &pool->reserve_bed && (uint32_t)atomic_load(&pool->ticket) != 0) return false;
    return b == &pool->caller_bed ? atomic_load(&pool->runs_done) != run : !atomic_load(&pool->quit);
}

static void wait_for_work(ei_pool *pool, int32_t thread, uint32_t run) {
    int64_t until = 0;
    for (;;) {
        bed *b = bed_of(pool, thread);
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (!must_wait(pool, b, run)) {
                pool->workers[thread].looked_ns = now_ns();
                return;
            }
            pause_cpu();
        }
        int64_t now = now_ns();
        if (until == 0) until = now + SPIN_NS;
        if (now < until && b != &pool->reserve_bed) continue;
        restore_affinity(pool, thread);
        atomic_fetch_add(&b->n_asleep, 1);
        uint32_t seen = atomic_load(&b->word);
        if (b == bed_of(pool, thread) && must_wait(pool, b, run)) bed_sleep(b, seen);
        atomic_fetch_sub(&b->n_asleep, 1);
        until = 0;
    }
}

static void *worker_main(void *argument) {
    worker *self = argument;
    ei_pool *pool = self->pool;
#ifdef __linux__
    char name[16];
    snprintf(name, sizeof name, "edgeinfer-%d", (int)self->index);
    pthread_setname_np(pthread_self(), name);
    atomic_store_explicit(&self->tid, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
#endif
    ei_fp_enter();
    self->looked_ns = now_ns();
    while (!atomic_load_explicit(&pool->quit, memory_order_acquire))
        if (!work(pool, self->index)) wait_for_work(pool, self->index, 0);
    return NULL;
}

/* -- the interface ---------------------------------------------------------------------------- */

/* Signals belong to the host program's threads: the workers are born with all of them blocked but for those that a
 * thread gives itself, which the system does not wait with: a blocked one ends the process whoever handles it. */
static const int FAULTS[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};

static int32_t start_workers(ei_pool *pool, int32_t n_threads) {
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) sigdelset(&all, FAULTS[i]);
    bool masked = pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
    int32_t n = 1;
    for (; n < n_threads; n++) {
        worker *w = &pool->workers[n];
        w->pool = pool;
        w->index = n;
        if (pthread_create(&w->handle, NULL, worker_main, w)) break;
    }
    if (masked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n;
}

static void release(ei_pool *pool) {
    free(pool->workers);
    free(pool);
}

static void *new_lines(size_t size) {
    void *memory = aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
    if (memory) __builtin_memset(memory, 0, size);
    return memory;
}

ei_pool *ei_pool_new(int32_t n_threads) {
    n_threads = n_threads < 1 ? 1 : n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
    ei_pool *pool = new_lines(sizeof *pool);
    if (!pool) return NULL;
    pool->workers = new_lines(sizeof(worker) * (size_t)n_threads);
    if (!pool->workers || !bed_make(&pool->workers_bed)) return release(pool), NULL;
    if (!bed_make(&pool->reserve_bed)) return bed_unmake(&pool->workers_bed), release(pool), NULL;
    if (!bed_make(&pool->caller_bed))
        return bed_unmake(&pool->workers_bed), bed_unmake(&pool->reserve_bed), release(pool), NULL;
    pthread_mutex_init(&pool->turn, NULL);
    pool->pid = getpid();
    for (int32_t i = 0; i < n_threads; i++) pool->workers[i].run_ns = LEAST_TURN_NS * 2;
#ifdef __linux__
    if (sched_getaffinity(0, sizeof pool->inherited, &pool->inherited) == 0) pool->n_cpus = CPU_COUNT(&pool->inherited);
#endif
    atomic_store(&pool->n_active, n_threads); /* before the workers look where they belong */
    /* the workers read n_threads only after the first ticket, which is stored after this */
    pool->n_threads = start_workers(pool, n_threads);
    atomic_store(&pool->n_active, pool->n_threads);
    return pool;
}

int32_t ei_pool_size(const ei_pool *pool) { return pool->n_threads; }

void ei_pool_use(ei_pool *pool, int32_t n_threads) {
    n_threads = n_threads < 1 ? 1 : n_threads > pool->n_threads ? pool->n_threads : n_threads;
    if (getpid() != pool->pid || atomic_exchange(&pool->n_active, n_threads) == n_threads) return;
    /* whoever sleeps where he no longer belongs changes beds */
    bed_wake(&pool->workers_bed, INT_MAX);
    bed_wake(&pool->reserve_bed, INT_MAX);
}

int32_t ei_pool_run(ei_pool *pool, void *context, const ei_job *jobs, int32_t n_jobs, const volatile int32_t *cancel) {
    /* before the lock, which another thread may have held when the process was forked */
    if (getpid() != pool->pid) return EI_FORKED;
    pthread_mutex_lock(&pool->turn);
    uint64_t fp_state = ei_fp_enter();
    pool->context = context;
    pool->jobs = jobs;
    pool->n_jobs = n_jobs;
    pool->next_job = 0;
    pool->cancel = cancel;
    atomic_store_explicit(&pool->cancelled, 0, memory_order_relaxed);
    uint32_t run = atomic_load(&pool->runs_done) + 1;
    pool->workers[0].looked_ns = now_ns();
    if (n_active(pool) > 1 && pool->workers[0].looked_ns - pool->last_end_ns >= IDLE_NS) narrow_affinity(pool);
    advance(pool, 0);
    while (atomic_load_explicit(&pool->runs_done, memory_order_acquire) != run)
        if (!work(pool, 0)) wait_for_work(pool, 0, run);
    int32_t cancelled = atomic_load_explicit(&pool->cancelled, memory_order_relaxed);
    if (n_active(pool) > 1) pool->last_end_ns = now_ns();
    ei_fp_leave(fp_state);
    pthread_mutex_unlock(&pool->turn);
    return cancelled ? EI_CANCELLED : EI_OK;
}

void ei_pool_free(ei_pool *pool) {
    if (!pool) return;
    /* a forked child has no workers to join, and its copies of the locks may be held for ever */
    if (getpid() == pool->pid) {
        atomic_store(&pool->quit, 1);
        bed_wake(&pool->workers_bed, INT_MAX);
        bed_wake(&pool->reserve_bed, INT_MAX);
        for (int32_t i = 1; i < pool->n_threads; i++) pthread_join(pool->workers[i].handle, NULL);
        bed_unmake(&pool->workers_bed);
        bed_unmake(&pool->reserve_bed);
        bed_unmake(&pool->caller_bed);
        pthread_mutex_destroy(&pool->turn);
    }
    release(pool);
}
