/* SPDX-License-Identifier: MIT
 * How often this process has become the child of a fork. What holds threads or locks compares generations to see that it was left behind. */
#ifndef FFNI_FORK_H
#define FFNI_FORK_H

unsigned ffni_fork_generation(void);

#endif
