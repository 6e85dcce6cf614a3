/* SPDX-License-Identifier: MIT
 * The floating-point environment. Every task of the library runs in the default one (round to nearest, denormals kept, no traps), so that
 * results do not depend on what the host has set, and leaves the host's as it was, sticky flags included. */
#ifndef FFNI_FPENV_H
#define FFNI_FPENV_H

#if defined(__SSE__)
#include <xmmintrin.h>

typedef unsigned int fpenv_t;

static inline fpenv_t fpenv_enter(void) {
    fpenv_t saved = _mm_getcsr();
    _mm_setcsr(0x1f80); /* all exceptions masked, no flags, round to nearest, no FTZ, no DAZ */
    return saved;
}

static inline void fpenv_leave(fpenv_t saved) {
    _mm_setcsr(saved);
}

#else
#include <fenv.h>

typedef fenv_t fpenv_t;

static inline fpenv_t fpenv_enter(void) {
    fpenv_t saved;
    fegetenv(&saved);
    fesetenv(FE_DFL_ENV);
    return saved;
}

static inline void fpenv_leave(fpenv_t saved) {
    fesetenv(&saved);
}

#endif
#endif
