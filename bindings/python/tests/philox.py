# SPDX-License-Identifier: MIT
"""Philox 4x32-10 of Salmon et al. 2011, from the paper, and the masks of dropout from the formula in ffn.h. Shares no code with the library."""
import numpy as np

SITES = ("pre_activation", "activation", "hidden", "branch", "path")


def philox(counter, key):
    """counter: four arrays of numbers below 2^32; key: two numbers. Gives four arrays of words."""
    low = np.uint64(2**32 - 1)
    a, b, c, d = (np.asarray(word, np.uint64) & low for word in counter)
    k0, k1 = (int(word) for word in key)
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (right >> np.uint64(32)) ^ b ^ np.uint64(k0), right & low, (left >> np.uint64(32)) ^ d ^ np.uint64(k1), left & low
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return a, b, c, d


def factors(site, p, rows, columns, seed, step, layer):
    """What dropout multiplies by: 0 or 1 / (1 - p), [len(rows), columns], for rows of these numbers."""
    row, column = (np.array(grid, np.uint64) for grid in np.meshgrid(rows, range(columns), indexing="ij"))
    counter = (np.uint64(SITES.index(site) * 2**28) + column // np.uint64(4), row, np.full_like(row, step), np.uint64(layer * 2**16) + (row >> np.uint64(32)))
    words = np.choose((column % np.uint64(4)).astype(int), philox(counter, (seed % 2**32, seed >> 32)))
    return np.where(words < round(2**32 * p), 0.0, 1 / (1 - p))
