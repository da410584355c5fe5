"""The order in which many windows are read: a permutation that is computed, without a table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lm_experiments.data.hashing import keyed_generator

WindowIds = NDArray[np.int64]
Bits = NDArray[np.uint64]

ROUNDS = 6
# The finaliser of SplitMix64 (Steele et al. 2014).
SHIFTS_AND_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = np.uint64(31)


def permuted(places: WindowIds, windows: int, seed: int, epoch: int) -> WindowIds:
    """Return the windows at some places of an epoch's order, `places` being below `windows`.

    It is a Feistel network of a power of two, at most twice as many, applied again to what is not a
    window, which leaves a permutation of the windows (Black and Rogaway 2002).
    """
    keys = keyed_generator(seed, "data", epoch).integers(0, 1 << 64, 2 * ROUNDS, np.uint64)
    bits = max(2, (windows - 1).bit_length())
    found = _network(places.astype(np.uint64), keys, bits)
    while (outside := found >= windows).any():
        found[outside] = _network(found[outside], keys, bits)
    return found.astype(np.int64)


def _network(values: Bits, keys: Bits, bits: int) -> Bits:
    """Return a permutation of all numbers of so many bits, of each of the values."""
    low = np.uint64(bits // 2)
    high_mask, low_mask = (np.uint64((1 << n) - 1) for n in (bits - bits // 2, bits // 2))
    high, rest = values >> low, values & low_mask
    for one, other in keys.reshape(-1, 2):
        high = high ^ (_mixed(rest + one) & high_mask)
        rest = rest ^ (_mixed(high + other) & low_mask)
    found: Bits = (high << low) | rest
    return found


def _mixed(values: Bits) -> Bits:
    for shift, factor in SHIFTS_AND_FACTORS:
        values = (values ^ (values >> np.uint64(shift))) * np.uint64(factor)
    mixed: Bits = values ^ (values >> LAST_SHIFT)
    return mixed
