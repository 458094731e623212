/* edgeinfer/csrc/cpu_count.c: how many threads this process may keep busy. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "threads.h"

enum { PATH_LEN = 4096 };

static int32_t affinity_cpus(void) {
#ifdef __linux__
    /* a machine with more CPUs than the set holds answers EINVAL, so ask with a larger set */
    for (int n_cpus = 1024; n_cpus <= 1 << 20; n_cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)n_cpus);
        if (!set) break;
        size_t size = CPU_ALLOC_SIZE((size_t)n_cpus);
        int failed = sched_getaffinity(0, size, set);
        int32_t count = failed ? 0 : CPU_COUNT_S(size, set);
        CPU_FREE(set);
        if (count > 0) return count;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < 1 << 20 ? (int32_t)online : 1;
}

/* Rounding to nearest: 1.5 CPUs are used better by two threads, 1.25 better by one. */
static int32_t cpus_of(double quota, double period) {
    if (!(quota > 0) || !(period > 0)) return 0;
    double cpus = quota / period + 0.5;
    if (cpus > 1 << 20) return 0;
    return cpus < 1 ? 1 : (int32_t)cpus;
}

static int read_line(const char *folder, const char *name, char *line, int size) {
    char path[PATH_LEN];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || length >= (int)sizeof path) return 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int ok = fgets(line, size, file) != NULL;
    fclose(file);
    return ok;
}

/* The quota of one group, of either version; 0: none. */
static int32_t group_cpus(const char *folder) {
    char line[128];
    double quota, period = 100000;
    if (read_line(folder, "cpu.max", line, sizeof line))
        return sscanf(line, "%lf %lf", &quota, &period) >= 1 ? cpus_of(quota, period) : 0;
    if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof line)) return 0;
    if (sscanf(line, "%lf", &quota) != 1) return 0;
    if (!read_line(folder, "cpu.cfs_period_us", line, sizeof line)) return 0;
    return sscanf(line, "%lf", &period) == 1 ? cpus_of(quota, period) : 0;
}

static int32_t tighter(int32_t a, int32_t b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

/* A group obeys its own quota and those of every group around it. Inside a container the path may
   name groups of the host that are not visible; what is mounted is then the container's own. */
static int32_t tightest_above(const char *mount, const char *group) {
    char folder[PATH_LEN];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || length >= (int)sizeof folder) return group_cpus(mount);
    size_t mount_length = strlen(mount);
    int32_t least = 0;
    for (;;) {
        least = tighter(least, group_cpus(folder));
        char *slash = strrchr(folder + mount_length, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

static int names_cpu(const char *controllers) {
    size_t n = strlen(controllers);
    for (size_t i = 0; i < n; i++)
        if (!strncmp(controllers + i, "cpu", 3) && (i == 0 || controllers[i - 1] == ',') &&
            (controllers[i + 3] == ',' || controllers[i + 3] == '\0'))
            return 1;
    return 0;
}

int32_t ei_quota_cpus(const char *self, const char *root) {
    FILE *file = fopen(self, "r");
    if (!file) return 0;
    char line[PATH_LEN], mount[PATH_LEN];
    int32_t least = 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        /* "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1 */
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0') {
            least = tighter(least, tightest_above(root, group));
        } else if (names_cpu(controllers)) {
            int length = snprintf(mount, sizeof mount, "%s/%s", root, controllers);
            if (length < 0 || length >= (int)sizeof mount) continue;
            least = tighter(least, tightest_above(mount, group));
        }
    }
    fclose(file);
    return least;
}

int32_t ei_default_threads(void) {
    int32_t cpus = affinity_cpus();
#ifdef __linux__
    cpus = tighter(cpus, ei_quota_cpus("/proc/self/cgroup", "/sys/fs/cgroup"));
#endif
    return cpus > 0 ? cpus : 1;
}
