/* SPDX-License-Identifier: MIT
 *
 * Philox 4x32-10 written from the paper's text (Salmon et al. 2011, section 2.2 and table 2), apart from the library's.
 */
#ifndef FFN_TEST_PHILOX_REFERENCE_H
#define FFN_TEST_PHILOX_REFERENCE_H

#include <stdint.h>

/* out = Philox of the counter c and the key k. */
void philox_reference(const uint32_t c[4], const uint32_t k[2], uint32_t out[4]);

#endif
