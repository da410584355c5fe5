"""Run directories between machines that share no disk: in pieces, a few of them in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from lm_experiments.rundir.atomic import UNFINISHED
from lm_experiments.rundir.names import LOCK, RESULT

PIECE_BYTES = 1 << 22
# How many pieces are made before the first of them is taken.
AHEAD = 4
# The path of a file in its directory, when it was last written in nanoseconds, and some bytes.
Piece = tuple[str, int, bytes]


def copy_from(node: str, source: Path, target: Path) -> None:
    """Copy a run directory from a node of the cluster.

    Raises:
        RayError: if the node is lost.
    """
    put_together(streamed(node, pieces_of, source), target)


def this_node() -> str:
    """Return Ray's name of the node of this process."""
    import ray

    name: str = ray.get_runtime_context().get_node_id()
    return name


def streamed(node: str, function: Callable[..., Iterator[Any]], *arguments: Any) -> Iterator[Any]:
    """Yield what a generator yields on a node, which waits where it is `AHEAD`."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # A node may lack the package; this module needs none of it to read files.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {
        "num_cpus": 0,
        "max_retries": 0,
        "num_returns": "streaming",
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        "_generator_backpressure_num_objects": AHEAD,
    }
    remote: Any = ray.remote(**options)(function)
    for reference in remote.remote(*arguments):
        yield ray.get(reference)


def pieces_of(directory: Path) -> Iterator[Piece]:
    """Yield the files of a run directory in pieces; its result comes last, as in training."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != LOCK]
    for path in sorted(files, key=lambda path: (path.name == RESULT, path)):
        name, written = str(path.relative_to(directory)), path.stat().st_mtime_ns
        with path.open("rb") as file:
            # An empty file is a piece too.
            yield name, written, file.read(PIECE_BYTES)
            while content := file.read(PIECE_BYTES):
                yield name, written, content


def put_together(pieces: Iterable[Piece], directory: Path) -> None:
    """Write the files whose pieces come in order, each whole or not at all."""
    for (name, written), parts in groupby(pieces, key=lambda piece: piece[:2]):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}{UNFINISHED}")
        try:
            with temporary.open("wb") as file:
                file.writelines(content for _, _, content in parts)
            os.utime(temporary, ns=(written, written))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
