/* SPDX-License-Identifier: MIT
 * How often this process has become the child of a fork. What holds threads or locks compares generations to see that it was left behind. */
#ifndef FFNI_FORK_H
#define FFNI_FORK_H

unsigned ffni_fork_generation(void);

/* Whether this thread is the one that a child began with: other libraries may still count on threads that it had before. */
int ffni_fork_survivor(void);

#endif
