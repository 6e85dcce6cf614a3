/* SPDX-License-Identifier: MIT
 * Cutting rows into tasks: a few per thread, so that a busy core does not hold up the call, and none too small. */
#include "core/parallel.h"

#include "base/checked.h"
#include "base/fpenv.h"

/* Elements that a task has at the least: some ten microseconds of work, which is what waking a sleeping thread costs. */
enum { TASK_WORK = 16384, TASKS_PER_THREAD = 4 };

typedef struct split {
    rows_fn *rows;
    void *data;
    int64_t count, tasks;
} split_t;

static void run_task(void *data, int64_t index) {
    split_t *split = data;
    int64_t share = split->count / split->tasks, rest = split->count % split->tasks;
    int64_t begin = index * share + minimum(index, rest);
    fpenv_t saved = fpenv_enter(); /* the thread may be the host's */
    split->rows(split->data, begin, begin + share + (index < rest));
    fpenv_leave(saved);
}

void ffni_parallel_rows(ffn_context_t *context, int64_t count, int64_t row_work, rows_fn *rows, void *data) {
    int64_t threads = context ? context->threads_requested : 1;
    int64_t rows_per_task = maximum(1, TASK_WORK / maximum(1, row_work));
    int64_t tasks = minimum(count / rows_per_task, threads * TASKS_PER_THREAD);
    if (threads == 1 || tasks < 2) {
        if (count > 0) rows(data, 0, count);
        return;
    }
    split_t split = {.rows = rows, .data = data, .count = count, .tasks = tasks};
    if (context->parallel_for)
        context->parallel_for(context->parallel_user, tasks, run_task, &split);
    else
        ffni_pool_run(context->pool, tasks, run_task, &split);
}
