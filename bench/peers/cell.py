# SPDX-License-Identifier: MIT
"""What was measured of one shape at one number of tokens and threads."""
import math
from dataclasses import dataclass

import numpy as np

from layers import Shape
from workers import ENGINES, LIMITS, OWN

DISTURBED = 1.2
PEERS = tuple(name for name in ENGINES if name not in LIMITS + OWN)


@dataclass
class Cell:
    shape: Shape
    level: str    # best or avx2
    tokens: int
    threads: int
    times: dict   # engine -> rounds -> seconds of each run
    forms: dict   # engine -> how it did it
    errors: dict  # engine -> largest deviation from float64, in terms of the largest number
    best: dict    # of the whole run, shared by its cells: the limits' best medians

    def quantile(self, engine, share):
        return float(np.quantile(np.concatenate(self.times[engine]), share))

    def median(self, engine):
        return self.quantile(engine, 0.5)

    def minimum(self, engine):
        return self.quantile(engine, 0)

    def limits(self, share=0.5):
        """Seconds that the FLOP take at the multiply-add peak, and that reading the weights takes. share 0: from the shortest times."""
        return {"FLOP": self.shape.flop(self.tokens) * self.quantile("peak", share) / float(self.forms["peak"]), "bytes": self.quantile("read", share)}

    @property
    def limit(self):
        return max(self.limits().values())

    @property
    def disturbance(self):
        """How far the limits' upper quartiles are above the best medians of the whole run, which on a quiet machine is little: 1 is not at all."""
        return max(self.quantile(name, 0.75) / self.best[self.best_key(name)] for name in LIMITS)

    @property
    def bytes(self):
        """Of the weights that a run reads."""
        return self.shape.bytes

    def best_key(self, name):
        return name, self.level, self.threads, self.shape if name == "read" else None

    def __post_init__(self):
        for name in LIMITS:
            self.best[self.best_key(name)] = min(self.median(name), self.best.get(self.best_key(name), math.inf))

    @property
    def disturbed(self):
        return self.disturbance > DISTURBED

    @property
    def bound(self):
        limits = self.limits()
        return max(limits, key=limits.get)

    def share(self, engine):
        return self.limit / self.median(engine)

    def share_of_minima(self, engine):
        return max(self.limits(0).values()) / self.minimum(engine)

    def times_as_long(self, engine, other):
        """How many times as long as the other the engine takes: the median over the rounds."""
        rounds = zip(self.times[engine], self.times[other])
        return float(np.median([np.median(one) / np.median(two) for one, two in rounds]))

    @property
    def own(self):
        """libffn's engine that the cell is about: native, where it was measured."""
        return next((name for name in OWN if name in self.times), None)

    @property
    def peer(self):
        """The fastest of the others."""
        return min((name for name in PEERS if name in self.times), key=self.median, default=None)

    def ratio(self):
        """How many times as long as libffn the best peer takes."""
        if not self.own or not self.peer:
            return None
        return self.times_as_long(self.peer, self.own)

    def short(self):
        """What this cell falls short of, in words; empty if it does not."""
        words, own, aim = [], self.own, self.shape.aim(self.tokens, self.threads)
        if not own:
            return words
        if self.level == "avx2":
            aim = None if self.bound == "bytes" or self.tokens < 64 else 0.90
        if aim and self.share(own) < aim:
            words.append(f"share {self.share(own):.2f}, to be {aim:.2f}")
        if self.shape.aim_us and 1e6 * self.median(own) > self.shape.aim_us:
            words.append(f"{1e6 * self.median(own):.2f} us, to be {self.shape.aim_us:.2f}")
        if self.peer and self.ratio() < 1:
            words.append(f"{self.peer} takes {self.ratio():.2f} of the time")
        return words

    def line(self):
        parts = [f"{name} {self.share(name):.2f}" for name in self.times if name not in LIMITS]
        ratio = f"; {self.peer} takes {self.ratio():.2f} times as long as {self.own}" if self.ratio() else ""
        return (f"{self.tokens:5d} tokens, {self.threads} thread{'s' if self.threads > 1 else ' '}  limit {1e6 * self.limit:9.1f} us ({self.bound:5s})  "
                + "  ".join(parts) + ratio + (f"; disturbed ({self.disturbance:.1f})" if self.disturbed else ""))
