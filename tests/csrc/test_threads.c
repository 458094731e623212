/* tests/csrc/test_threads.c: the pool runs jobs in order, sees every write, stops, forks and ends. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "threads.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Neither the thread sanitizer nor user-mode QEMU (which runs the AArch64 build) can start threads
   in a forked child. */
#if defined(__SANITIZE_THREAD__) || defined(__aarch64__)
#define NO_THREADS_AFTER_FORK
#endif

enum { MOST_JOBS = 40, MOST_CHUNKS = 64 };

typedef struct {
    uint64_t out[MOST_JOBS + 1][MOST_CHUNKS];
    _Atomic int32_t n_runs[MOST_JOBS][MOST_CHUNKS];
    int32_t n_chunks[MOST_JOBS];
    int32_t size; /* threads a chunk may be given */
} work_state;

static uint64_t mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

/* Every chunk depends on all chunks of the job before it. */
static uint64_t value_of(const work_state *s, int32_t job, int32_t chunk) {
    uint64_t h = (uint64_t)job * 1000003u + (uint64_t)chunk;
    int32_t before = job - 1;
    while (before >= 0 && s->n_chunks[before] <= 0) before--;
    for (int32_t i = 0; before >= 0 && i < s->n_chunks[before]; i++) h = mix(h ^ s->out[before][i]);
    return mix(h);
}

static void hash_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    work_state *s = context;
    int32_t job = (int32_t)(intptr_t)op;
    CHECK(thread >= 0 && thread < s->size);
    s->out[job][chunk] = value_of(s, job, chunk);
    atomic_fetch_add(&s->n_runs[job][chunk], 1);
}

static uint32_t seed = 12345;
static uint32_t next_random(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static int32_t random_jobs(work_state *s, ei_job *jobs) {
    int32_t n = (int32_t)next_random(MOST_JOBS) + 1;
    for (int32_t j = 0; j < n; j++) {
        static const uint32_t widths[] = {1, 2, 4, 16, MOST_CHUNKS};
        s->n_chunks[j] = (int32_t)next_random(widths[next_random(5)] + 1);
        jobs[j] = (ei_job){hash_chunk, (void *)(intptr_t)j, s->n_chunks[j]};
    }
    return n;
}

static void check_results(const work_state *s, int32_t n_jobs) {
    for (int32_t j = 0; j < n_jobs; j++)
        for (int32_t i = 0; i < s->n_chunks[j]; i++) {
            CHECK(s->n_runs[j][i] == 1);
            CHECK(s->out[j][i] == value_of(s, j, i));
        }
}

static void test_jobs_run_in_order_on_any_number_of_threads(void) {
    static work_state s;
    ei_job jobs[MOST_JOBS];
    for (int32_t n_threads = 1; n_threads <= 16; n_threads++) {
        ei_pool *pool = ei_pool_new(n_threads);
        CHECK(pool && ei_pool_size(pool) == n_threads);
        s.size = n_threads;
        for (int round = 0; round < (n_threads <= 4 ? 400 : 100); round++) {
            memset(s.n_runs, 0, sizeof s.n_runs);
            int32_t n = random_jobs(&s, jobs);
            CHECK(ei_pool_run(pool, &s, jobs, n, NULL) == EI_OK);
            check_results(&s, n);
            if (round % 100 == 99) usleep(2000); /* asleep, and woken past its waker's CPU */
        }
        ei_pool_free(pool);
    }
}

static void test_empty_lists_are_done_at_once(void) {
    ei_pool *pool = ei_pool_new(2);
    ei_job nothing = {NULL, NULL, 0};
    CHECK(ei_pool_run(pool, NULL, NULL, 0, NULL) == EI_OK);
    CHECK(ei_pool_run(pool, NULL, &nothing, 1, NULL) == EI_OK);
    ei_pool_free(pool);
    ei_pool_free(NULL);
}

static _Atomic int32_t n_counted;
static void count_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    (void)context, (void)op, (void)chunk, (void)thread;
    atomic_fetch_add_explicit(&n_counted, 1, memory_order_relaxed);
}

static void test_a_job_may_have_a_million_chunks(void) {
    ei_pool *pool = ei_pool_new(2);
    ei_job job = {count_chunk, NULL, 1000003};
    n_counted = 0;
    CHECK(ei_pool_run(pool, NULL, &job, 1, NULL) == EI_OK);
    CHECK(n_counted == 1000003);
    ei_pool_free(pool);
}

/* Waits, but not for ever, until a second thread has come. */
static _Atomic uint32_t seen_threads;
static void meeting_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    count_chunk(context, op, chunk, thread);
    atomic_fetch_or(&seen_threads, 1u << thread);
    for (int i = 0; i < 10000 && (seen_threads & (seen_threads - 1)) == 0; i++) usleep(1000);
}

static void test_members_are_sent_to_sleep_and_called_back(void) {
    static work_state s;
    ei_job jobs[MOST_JOBS], alone = {count_chunk, NULL, 64}, meeting = {meeting_chunk, NULL, 4};
    ei_pool *pool = ei_pool_new(4);
    s.size = 4;
    for (int round = 0; round < 400; round++) {
        ei_pool_use(pool, (int32_t)next_random(6));
        memset(s.n_runs, 0, sizeof s.n_runs);
        int32_t n = random_jobs(&s, jobs);
        CHECK(ei_pool_run(pool, &s, jobs, n, NULL) == EI_OK);
        check_results(&s, n);
        if (round % 50 == 49) usleep(2000);
    }
    for (int32_t n_threads = 2; n_threads <= 4; n_threads++) {
        ei_pool_use(pool, 1);
        n_counted = 0;
        CHECK(ei_pool_run(pool, NULL, &alone, 1, NULL) == EI_OK && n_counted == 64);
        usleep(2000);
        ei_pool_use(pool, n_threads);
        seen_threads = 0;
        CHECK(ei_pool_run(pool, NULL, &meeting, 1, NULL) == EI_OK);
        CHECK(seen_threads > 1);
    }
    ei_pool_use(pool, 1);
    usleep(2000);
    ei_pool_free(pool);
}

static int32_t cancel_flag;
static void cancelling_chunk(void *context, const void *op, int32_t chunk, int32_t thread) {
    count_chunk(context, op, chunk, thread);
    if (chunk == 100) __atomic_store_n(&cancel_flag, 1, __ATOMIC_RELAXED);
}

static void test_cancel_skips_the_rest_and_leaves_the_pool_usable(void) {
    for (int32_t n_threads = 1; n_threads <= 4; n_threads++) {
        ei_pool *pool = ei_pool_new(n_threads);
        ei_job jobs[2] = {{cancelling_chunk, NULL, 1000000}, {count_chunk, NULL, 1000}};
        for (int round = 0; round < 50; round++) {
            n_counted = 0;
            cancel_flag = 0;
            CHECK(ei_pool_run(pool, NULL, jobs, 2, &cancel_flag) == EI_CANCELLED);
            CHECK(n_counted > 0 && n_counted < 1000000);
            n_counted = 0;
            CHECK(ei_pool_run(pool, NULL, jobs + 1, 1, &cancel_flag) == EI_CANCELLED);
            CHECK(n_counted == 0);
            cancel_flag = 0;
            CHECK(ei_pool_run(pool, NULL, jobs + 1, 1, &cancel_flag) == EI_OK);
            CHECK(n_counted == 1000);
        }
        ei_pool_free(pool);
    }
}

static void test_a_forked_child_is_told_and_the_parent_goes_on(void) {
    ei_pool *pool = ei_pool_new(2);
    ei_job job = {count_chunk, NULL, 100};
    CHECK(ei_pool_run(pool, NULL, &job, 1, NULL) == EI_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int32_t code = ei_pool_run(pool, NULL, &job, 1, NULL);
        ei_pool_free(pool);
        int32_t own_code = EI_OK;
#ifndef NO_THREADS_AFTER_FORK
        ei_pool *own = ei_pool_new(2);
        own_code = ei_pool_run(own, NULL, &job, 1, NULL);
        ei_pool_free(own);
#endif
        _exit(code == EI_FORKED && own_code == EI_OK ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ei_pool_run(pool, NULL, &job, 1, NULL) == EI_OK);
    ei_pool_free(pool);
}

static void test_pools_come_and_go(void) {
    ei_job job = {count_chunk, NULL, 7};
    for (int i = 0; i < 200; i++) {
        ei_pool *pool = ei_pool_new(i % 5);
        if (i % 3) CHECK(ei_pool_run(pool, NULL, &job, 1, NULL) == EI_OK);
        ei_pool_free(pool);
    }
}

static ei_pool *shared_pool;
static void *run_on_shared_pool(void *argument) {
    work_state *s = argument;
    for (int round = 0; round < 100; round++) {
        ei_job jobs[3];
        memset(s->n_runs, 0, sizeof s->n_runs);
        for (int32_t j = 0; j < 3; j++) {
            s->n_chunks[j] = 8;
            jobs[j] = (ei_job){hash_chunk, (void *)(intptr_t)j, 8};
        }
        CHECK(ei_pool_run(shared_pool, s, jobs, 3, NULL) == EI_OK);
        check_results(s, 3);
    }
    return NULL;
}

static void test_callers_from_several_threads_take_turns(void) {
    pthread_t callers[3];
    work_state *states = calloc(3, sizeof *states);
    shared_pool = ei_pool_new(3);
    for (int i = 0; i < 3; i++) {
        states[i].size = 3;
        CHECK(!pthread_create(&callers[i], NULL, run_on_shared_pool, &states[i]));
    }
    for (int i = 0; i < 3; i++) pthread_join(callers[i], NULL);
    ei_pool_free(shared_pool);
    free(states);
}

static _Atomic int32_t n_wrong;
static void check_thread(void *context, const void *op, int32_t chunk, int32_t thread) {
    (void)context, (void)op, (void)chunk;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (thread != 0 && !sigismember(&blocked, SIGINT)) n_wrong++;
    if (sigismember(&blocked, SIGBUS) || sigismember(&blocked, SIGSEGV)) n_wrong++; /* its own faults are handled */
#if defined(__x86_64__)
    if ((_mm_getcsr() & 0xffc0u) != 0x1f80u) n_wrong++;
#endif
}

static void test_chunks_see_a_clean_fpu_and_workers_take_no_signals(void) {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); /* as a library built with -ffast-math leaves it */
#endif
    ei_pool *pool = ei_pool_new(3);
    ei_job job = {check_thread, NULL, 1000};
    for (int i = 0; i < 20; i++) CHECK(ei_pool_run(pool, NULL, &job, 1, NULL) == EI_OK);
    ei_pool_free(pool);
    CHECK(n_wrong == 0);
#if defined(__x86_64__)
    CHECK((_mm_getcsr() & 0x8040u) == 0x8040u);
    _mm_setcsr(before);
#endif
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void test_quota_is_the_tightest_around_the_process(void) {
    char root[] = "/tmp/edgeinfer-cgroup-XXXXXX";
    CHECK(mkdtemp(root) && chdir(root) == 0);
    CHECK(!mkdir("a", 0700) && !mkdir("a/b", 0700) && !mkdir("cpu,cpuacct", 0700));
    write_text("self", "0::/a/b\n");
    CHECK(ei_quota_cpus("self", ".") == 0 && ei_quota_cpus("missing", ".") == 0);
    write_text("a/b/cpu.max", "max 100000\n");
    CHECK(ei_quota_cpus("self", ".") == 0);
    write_text("a/cpu.max", "300000 100000\n");
    CHECK(ei_quota_cpus("self", ".") == 3);
    write_text("cpu.max", "150000 100000\n");
    CHECK(ei_quota_cpus("self", ".") == 2);
    write_text("a/b/cpu.max", "1000 100000\n");
    CHECK(ei_quota_cpus("self", ".") == 1);
    write_text("self", "9:memory:/x\n4:cpu,cpuacct:/docker/of-the-host\n3:cpuset:/\n");
    write_text("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_text("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CHECK(ei_quota_cpus("self", ".") == 0);
    write_text("cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
    CHECK(ei_quota_cpus("self", ".") == 4);
    const char *const made[] = {"self",
                                "a/b/cpu.max",
                                "a/cpu.max",
                                "cpu.max",
                                "a/b",
                                "a",
                                "cpu,cpuacct/cpu.cfs_quota_us",
                                "cpu,cpuacct/cpu.cfs_period_us",
                                "cpu,cpuacct",
                                root};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) CHECK(remove(made[i]) == 0);
    CHECK(chdir("/") == 0 && ei_default_threads() >= 1);
}

int main(void) {
    test_jobs_run_in_order_on_any_number_of_threads();
    test_empty_lists_are_done_at_once();
    test_members_are_sent_to_sleep_and_called_back();
    test_a_job_may_have_a_million_chunks();
    test_cancel_skips_the_rest_and_leaves_the_pool_usable();
    test_a_forked_child_is_told_and_the_parent_goes_on();
    test_pools_come_and_go();
    test_callers_from_several_threads_take_turns();
    test_chunks_see_a_clean_fpu_and_workers_take_no_signals();
    test_quota_is_the_tightest_around_the_process();
    puts("threads: ok");
    return 0;
}
