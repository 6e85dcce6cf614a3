/* SPDX-License-Identifier: MIT
 * Cutting rows into tasks: a few per thread, so that a busy core does not hold up the call, and none too small. And slots, which find their own work. */
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

static void run_tasks(ffn_context_t *context, int64_t count, ffn_task_fn task, void *data) {
    if (context->parallel_for)
        context->parallel_for(context->parallel_user, count, task, data);
    else
        ffni_pool_run(context->pool, count, task, data);
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
    run_tasks(context, tasks, run_task, &split);
}

typedef struct slots {
    slot_fn *work;
    void *data;
} slots_t;

static void run_slot(void *data, int64_t slot) {
    slots_t *slots = data;
    fpenv_t saved = fpenv_enter();
    slots->work(slots->data, slot);
    fpenv_leave(saved);
}

void ffni_parallel_slots(ffn_context_t *context, int64_t count, slot_fn *work, void *data) {
    slots_t slots = {work, data};
    if (count > 1)
        run_tasks(context, count, run_slot, &slots);
    else
        work(data, 0);
}
