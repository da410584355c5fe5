"""Read the `.wandb` transaction log of a run: which metrics it holds at which step."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm_experiments.training.wandb.axes import X_AXIS

# The log is a LevelDB log: blocks of fragments headed by checksum, length and kind, where kind is
# whole, first, middle or last.
_BLOCK = 32768
_FRAGMENT = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def logged_keys(path: Path) -> dict[int, set[str]]:
    """Return the metric names found at each global step of a `.wandb` transaction log.

    A log cut short by a kill is read up to the cut.
    """
    from wandb.proto import wandb_internal_pb2

    found: dict[int, set[str]] = {}
    for data in _records(path.read_bytes()):
        record: Any = vars(wandb_internal_pb2)["Record"]()
        record.ParseFromString(data)
        items = {
            item.key or ".".join(item.nested_key): item.value_json for item in record.history.item
        }
        if X_AXIS in items:
            found.setdefault(int(float(items[X_AXIS])), set()).update(items)
    return found


def _records(data: bytes) -> Iterator[bytes]:
    """Split a log into records, up to the first damaged fragment."""
    position, whole = 7, b""
    while position + _FRAGMENT.size <= len(data):
        if (left := _BLOCK - position % _BLOCK) < _FRAGMENT.size:
            position += left
            continue
        _, length, kind = _FRAGMENT.unpack_from(data, position)
        position += _FRAGMENT.size
        if not _WHOLE <= kind <= _LAST or position + length > len(data):
            return
        whole = (b"" if kind in (_WHOLE, _FIRST) else whole) + data[position : position + length]
        position += length
        if kind in (_WHOLE, _LAST):
            yield whole
