/* edgeinfer/csrc/guard.c: a page of a mapped file that cannot be read is a mark and zeros, not the end of the process.
 *
 * The system sends SIGBUS to who reads a page whose file was shortened, or whose disk is gone. The handler puts zeros
 * under the rest of the map, marks the guard and lets the thread go on: whoever reads through the map asks for the mark
 * afterwards and throws away what it computed. Faults anywhere else go to whoever handled them before.
 */
#define _GNU_SOURCE
#include "edgeinfer.h"

#if defined(__unix__) || defined(__APPLE__)
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_GUARDS = 1024 };

/* A range of whole pages; end 0: not in use. The handler reads it in any thread at any time. */
typedef struct {
    atomic_uintptr_t begin, end;
    atomic_int lost;
} guard;

static guard guards[MOST_GUARDS];
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static atomic_int passing_on;
static uintptr_t page_bytes;

/* Let whoever was there before have the signal. One that sends it again, as faulthandler does, wants the end. */
static void pass_on(int number, siginfo_t *info, void *context) {
    bool is_fault = info->si_code > 0, is_plain = !(before.sa_flags & SA_SIGINFO);
    if (is_plain && before.sa_handler == SIG_IGN && !is_fault) return;
    bool is_nobody = is_plain && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN);
    if (is_nobody || (!is_fault && atomic_load(&passing_on))) {
        signal(number, SIG_DFL); /* a fault is repeated by the instruction itself */
        if (!is_fault) raise(number);
        return;
    }
    atomic_store(&passing_on, 1);
    if (is_plain)
        before.sa_handler(number);
    else
        before.sa_sigaction(number, info, context);
    atomic_store(&passing_on, 0); /* unless it jumped away */
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    int kept = errno;
    uintptr_t at = (uintptr_t)info->si_addr & ~(page_bytes - 1), last = 0;
    if (info->si_code > 0) {
        for (int i = 0; i < MOST_GUARDS; i++) {
            uintptr_t end = atomic_load(&guards[i].end);
            if (at >= end || at < atomic_load(&guards[i].begin)) continue;
            atomic_store(&guards[i].lost, 1);
            last = end;
        }
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (!last || mmap((void *)at, last - at, PROT_READ, flags, -1, 0) == MAP_FAILED) pass_on(number, info, context);
    errno = kept;
}

/* Handle SIGBUS from now on, unless that is so; a handler that was set meanwhile comes behind. */
static bool is_listening(void) {
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now)) return false;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return true;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    before = now;
    return !sigaction(SIGBUS, &ours, NULL);
}

int32_t ei_guard(const void *begin, size_t n_bytes) {
    int32_t found = -1;
    pthread_mutex_lock(&changing);
    if (n_bytes && is_listening()) {
        for (int32_t i = 0; i < MOST_GUARDS && found < 0; i++) {
            if (atomic_load(&guards[i].end)) continue;
            atomic_store(&guards[i].lost, 0);
            atomic_store(&guards[i].begin, (uintptr_t)begin & ~(page_bytes - 1));
            atomic_store(&guards[i].end, ((uintptr_t)begin + n_bytes + page_bytes - 1) & ~(page_bytes - 1));
            found = i;
        }
    }
    pthread_mutex_unlock(&changing);
    return found;
}

int32_t ei_guard_is_lost(int32_t number) { return number >= 0 && atomic_load(&guards[number].lost); }

void ei_unguard(int32_t number) {
    if (number < 0) return;
    pthread_mutex_lock(&changing);
    atomic_store(&guards[number].end, 0);
    pthread_mutex_unlock(&changing);
}

#else

int32_t ei_guard(const void *begin, size_t n_bytes) {
    (void)begin;
    (void)n_bytes;
    return -1;
}

int32_t ei_guard_is_lost(int32_t number) {
    (void)number;
    return 0;
}

void ei_unguard(int32_t number) { (void)number; }

#endif
