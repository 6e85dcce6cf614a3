/* SPDX-License-Identifier: MIT */
#include "support/small_stack.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/stack.h"
#include "support/test.h"

typedef struct job {
    small_stack_fn *function;
    void *argument;
    uint64_t left;
} job_t;

static void *run(void *data)
{
    job_t *job = data;
    job->left = ffni_stack_left();
    if (job->function) job->function(job->argument);
    return NULL;
}

/* Memory for a stack, above an inaccessible page. */
static char *map_stack(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map, page, PROT_NONE), 0);
    return map + page;
}

static void unmap_stack(char *stack, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(stack - page, page + size);
}

/* Returns false where the system wants more for a thread. The stack is the test's: one that the C library keeps from another thread could be
 * larger. */
static bool run_with(size_t size, job_t *job)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char *stack = map_stack(size);
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, size), 0);
    int error = pthread_create(&thread, &attributes, run, job);
    pthread_attr_destroy(&attributes);
    if (error && error != EINVAL) fail_msg("pthread_create: %s", strerror(error));
    if (!error) pthread_join(thread, NULL);
    unmap_stack(stack, size);
    return !error;
}

void on_small_thread(small_stack_fn *function, void *argument)
{
    static size_t size; /* found once, on a stack with room to spare: on what thread-local storage leaves of a small one the C library itself may fail */
    enum { AMPLE = 1 << 20, PAGE = 4096 };
    job_t probe = {NULL, NULL, 0}, job = {function, argument, 0};
    if (!size) {
        assert_true(run_with(AMPLE, &probe));
        size = (SMALL_STACK + AMPLE - (size_t)probe.left + PAGE - 1) / PAGE * PAGE;
    }
    assert_true(run_with(size, &job));
    assert_true(job.left >= SMALL_STACK && job.left < SMALL_STACK + 8192);
}

/* makecontext passes ints alone. */
static _Thread_local job_t coroutine_job;

static void enter_coroutine(void)
{
    coroutine_job.function(coroutine_job.argument);
}

void on_coroutine(small_stack_fn *function, void *argument)
{
    ucontext_t here, there;
    char *stack = map_stack(SMALL_STACK);
    coroutine_job = (job_t){function, argument, 0};
    assert_int_equal(getcontext(&there), 0);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = SMALL_STACK;
    there.uc_link = &here;
    makecontext(&there, enter_coroutine, 0);
    assert_int_equal(swapcontext(&here, &there), 0);
    unmap_stack(stack, SMALL_STACK);
}
