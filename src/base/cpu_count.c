/* SPDX-License-Identifier: MIT
 * The default number of threads: affinity mask and cgroup CPU quota (versions 2 and 1). The quota rounds down: a group that is allowed 1.5 CPUs
 * runs two busy threads into throttling, and one thread never. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "base/cpu_count.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)

enum { CPUS_MAX = 8192, FILE_MAX_SIZE = 4096, PATH_MAX_SIZE = 1024 };

static uint32_t affinity_count(void) {
    unsigned long mask[CPUS_MAX / 8 / sizeof(unsigned long)];
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask)) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (uint32_t)online : 1;
    }
    return (uint32_t)CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
}

/* The start of a small file as text: "" when it cannot be read. No stdio stream, which would allocate. */
static void read_text(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
    if (file >= 0) close(file);
    text[length > 0 ? length : 0] = 0;
}

/* CPUs that "quota period" allows; 0 without a limit. */
static uint32_t quota_count(const char *quota, const char *period) {
    long long q = strtoll(quota, NULL, 10), p = strtoll(period, NULL, 10);
    if (q <= 0 || p <= 0) return 0;
    return q / p > 0 ? (uint32_t)(q / p) : 1;
}

static uint32_t smaller_limit(uint32_t a, uint32_t b) {
    return !a ? b : !b ? a : a < b ? a : b;
}

/* cgroup 2: cpu.max ("quota period" or "max period") of the process's group and of every group above it. */
static uint32_t cgroup2_count(char *group) {
    uint32_t limit = 0;
    for (;;) {
        char path[PATH_MAX_SIZE + 64], text[64];
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        read_text(path, text, sizeof text);
        char *space = strchr(text, ' ');
        if (space) limit = smaller_limit(limit, quota_count(text, space));
        char *slash = strrchr(group, '/');
        if (!slash) return limit;
        *slash = 0;
    }
}

static uint32_t cgroup1_count(void) {
    char quota[32], period[32];
    read_text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota);
    read_text("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period);
    return quota_count(quota, period);
}

static uint32_t cgroup_count(void) {
    char text[FILE_MAX_SIZE], group[PATH_MAX_SIZE] = "";
    read_text("/proc/self/cgroup", text, sizeof text);
    char *entry = strncmp(text, "0::", 3) ? strstr(text, "\n0::") : text;
    if (entry) {
        entry = strstr(entry, "0::") + 3;
        size_t length = strcspn(entry, "\n");
        if (length < sizeof group) {
            memcpy(group, entry, length);
            group[length] = 0;
        }
        if (!strcmp(group, "/")) *group = 0;
    }
    return smaller_limit(cgroup2_count(group), cgroup1_count());
}

uint32_t ffni_cpu_count(void) {
    uint32_t count = smaller_limit(affinity_count(), cgroup_count());
    return count ? count : 1;
}

#else

uint32_t ffni_cpu_count(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

#endif
