"""Which wave each step runs in: the first with room at all its ends, one step after the other.

A loop, since each choice depends on all before it; full waves are the bits of an integer, so that a step looks at all
of them at once: a quarter of a second for 100,000 moves in 10,000 waves. In: steps and their ends. Out: a wave a step.
"""

from collections import Counter, defaultdict

import numpy as np

from planner.placement.problem import Ints


def first_fit(nth: Ints, step: Ints, end: Ints, cap: int) -> Ints:
    """Wave of each step; `nth` counts the steps of a row from 0, each to run after the one before.

    `step` and `end` have an entry for each place a step takes up, by step ascending; an end has `cap` places a wave.

    >>> first_fit(np.array([0, 0, 1, 0]), np.array([0, 1, 2, 3]), np.array([7, 7, 8, 7]), 2)
    array([0, 0, 1, 1])
    """
    firsts = np.searchsorted(step, np.arange(len(nth) + 1)).tolist()
    ends = end.tolist()
    full: defaultdict[int, int] = defaultdict(int)
    used: defaultdict[int, Counter[int]] = defaultdict(Counter)
    waves: list[int] = []
    for number, earlier in enumerate(nth.tolist()):
        mine = ends[firsts[number] : firsts[number + 1]]
        closed = (1 << (waves[-1] + 1)) - 1 if earlier else 0
        for one in mine:
            closed |= full[one]
        wave = (~closed & (closed + 1)).bit_length() - 1
        for one in mine:
            used[one][wave] += 1
            if used[one][wave] == cap:
                full[one] |= 1 << wave
        waves.append(wave)
    return np.array(waves, dtype=np.int64)
