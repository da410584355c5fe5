"""Freed memory stays with the process, instead of being asked for again in each step."""

from __future__ import annotations

import ctypes
import sys

# Options of glibc's mallopt: give back nothing from the top of the heap; grow it by so much at
# once; and place larger blocks outside of it. Their size is the one that glibc comes to by itself,
# unless an option is set; without a limit, holes between blocks of hundreds of MB would add up.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
OPTIONS = {MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: -1, TOP_PAD: 256 << 20}


def keep_freed_memory() -> None:
    """Have this process keep what it frees, where its allocator is glibc's; values do not change.

    A step allocates what the one before has freed. Without this, the system clears its pages again.
    The process holds the peak of its heap to its end.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in OPTIONS.items():
            mallopt(option, value)
