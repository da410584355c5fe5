"""Checkpoints of a run: written atomically, verified by checksum, the newest two kept.

Each is a file, or a folder of shards that are such files (see `shards`).
Of a run that is done, one is kept, with its weights and without the state of the optimizer.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from lm_experiments.errors import InputError
from lm_experiments.model import Transformer, sketch_model
from lm_experiments.rundir.atomic import UNFINISHED, remove, remove_unfinished
from lm_experiments.rundir.names import CHECKPOINTS
from lm_experiments.training import shards
from lm_experiments.training.config import RunConfig

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

NAME = re.compile(rf"step-[0-9]{{8}}(\.ckpt|{re.escape(shards.SUFFIX)})")
# The newest, and the one before it, should the newest turn out to be damaged.
KEPT = 2
# Where a checkpoint has the state of its optimizers; empty where only the weights were kept.
OPTIMIZERS = "optimizer_states"
# And of its callbacks, of which the average of the weights is one.
CALLBACKS, AVERAGE = "callbacks", "average"
# What a checkpoint takes beside its tensors, at most: names, settings, the archive itself.
OVERHEAD_BYTES = 1 << 20
# A checkpoint ends with this and the checksum of all before it, which zip readers skip. The
# archive's own checksums do not cover its table of contents.
SEAL = b"LMCRC32\n"
SEAL_BYTES = len(SEAL) + 4
CHUNK_BYTES = 1 << 24

log = logging.getLogger(__name__)


class CheckpointError(RuntimeError):
    """A checkpoint could not be written; those before it are untouched."""


def save_checkpoint(trainer: Trainer, run_dir: Path) -> None:
    """Write ``checkpoints/step-NNNNNNNN.ckpt``, then remove all but the newest `KEPT`.

    Shards are written as a folder, ``step-NNNNNNNN.shards``.

    Raises:
        CheckpointError: see `write_whole`.
    """
    path = run_dir / CHECKPOINTS / f"step-{trainer.global_step:08d}.ckpt"
    trainer.save_checkpoint(path, weights_only=False)
    if trainer.is_global_zero:
        _prune(run_dir, trainer.global_step)


def keep_weights(run_dir: Path) -> None:
    """Leave the newest checkpoint of a run that goes on no more: a file, without its optimizers.

    Raises:
        CheckpointError: see `write_whole`.
    """
    path = newest_checkpoint(run_dir)
    if path is None:
        return
    checkpoint = open_checkpoint(path)
    if checkpoint.get(OPTIMIZERS):
        weights = shards.whole({**checkpoint, OPTIMIZERS: []})
        write_whole(weights, path.with_suffix(".ckpt"))
    _prune(run_dir, checkpoint_step(path), 1)


def write_whole(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint beside its place, to the disk, and only then move it there.

    Raises:
        CheckpointError: naming the path and the free space, where it cannot be written.
    """
    temporary = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        path.parent.mkdir(exist_ok=True)
        tensors = (leaf for leaf in tree_leaves(dict(checkpoint)) if isinstance(leaf, torch.Tensor))
        needed = sum(tensor.nbytes for tensor in tensors) + OVERHEAD_BYTES
        if shutil.disk_usage(path.parent).free < needed:
            raise OSError(f"it needs {needed:,} bytes")
        with temporary.open("w+b") as file:
            torch.save(checkpoint, file)
            size = file.seek(0, os.SEEK_END)
            file.write(SEAL + _checksum(file, size))
            file.flush()
            os.fsync(file.fileno())
        _move(temporary, path)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError of its archive writer.
        free = shutil.disk_usage(next(folder for folder in path.parents if folder.exists())).free
        raise CheckpointError(
            f"{path} could not be written ({error}); {free:,} bytes are free there."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_shard(shard: Mapping[str, Any], path: Path) -> None:
    """Write this process's shard of a checkpoint, in all processes at once.

    The first one moves the folder to its place when the shards of all are on the disk.

    Raises:
        CheckpointError: in all processes, where one cannot write.
    """
    rank, count = dist.get_rank(), dist.get_world_size()
    temporary = path.with_name(f".{path.name}{UNFINISHED}")

    def _begin() -> None:
        if rank == 0:
            remove(temporary)
            temporary.mkdir(parents=True)

    def _end() -> None:
        if rank == 0:
            # Of the step that this process began from; the one before it is still there.
            remove(path)
            _move(temporary, path)

    try:
        _in_all(_begin)
        _in_all(lambda: write_whole(shard, temporary / shards.names_of(count)[rank]))
        _in_all(_end)
    finally:
        if rank == 0:
            remove(temporary)


def _in_all(act: Callable[[], None]) -> None:
    """Act in each process; where it fails in one, all raise what went wrong there."""
    message = ""
    try:
        act()
    except (CheckpointError, OSError) as error:
        message = str(error)
    messages = [message] * dist.get_world_size()
    dist.all_gather_object(messages, message)
    if any(messages):
        raise CheckpointError(next(filter(None, messages)))


def _move(temporary: Path, path: Path) -> None:
    """Move what is on the disk to its place, on the disk too."""
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(run_dir: Path, newest: Path | None) -> None:
    """Check before the first step that checkpoints can be written.

    What a kill in the middle of a save has left is removed.

    Args:
        run_dir: the run directory.
        newest: the checkpoint that the run continues from.

    Raises:
        CheckpointError: where they cannot.
    """
    probe = run_dir / CHECKPOINTS / ".probe"
    try:
        probe.parent.mkdir(exist_ok=True)
        probe.touch()
        probe.unlink()
        remove_unfinished(probe.parent)
        if newest is not None:
            _prune(run_dir, checkpoint_step(newest))
    except OSError as error:
        raise CheckpointError(f"{probe.parent} cannot be written to: {error.strerror}.") from error


def newest_checkpoint(run_dir: Path) -> Path | None:
    """Return the run's newest checkpoint that can be read, or None; damaged ones are named."""
    for path in checkpoints_of(run_dir):
        if is_whole(path):
            return path
        log.warning("%s is damaged and is skipped.", path)
    return None


def checkpoint_to_go_on_from(run_dir: Path, max_steps: int) -> Path | None:
    """Return the newest checkpoint from which a run can reach its last step, or None.

    The last step itself needs weights alone.
    """
    path = newest_checkpoint(run_dir)
    if path is None or checkpoint_step(path) >= max_steps:
        return path
    return path if open_checkpoint(path).get(OPTIMIZERS) else None


def open_checkpoint(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds; tensors are read where they are used, shards as `Rows`."""
    files = [
        torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        for file in files_of(path)
    ]
    checkpoint: dict[str, Any] = shards.joined(files) if path.is_dir() else files[0]
    return checkpoint


def files_of(path: Path) -> list[Path]:
    """Return the files that a checkpoint consists of."""
    return sorted(path.glob("shard-*.ckpt")) if path.is_dir() else [path]


def is_whole(path: Path) -> bool:
    """Return whether a checkpoint has the checksum it was written with, or each of all its shards.

    One that was written by something else has only those of its records.
    """
    if path.is_dir():
        files = files_of(path)
        are_all = [file.name for file in files] == shards.names_of(len(files))
        return bool(files) and are_all and all(map(is_whole, files))
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END) - SEAL_BYTES
            file.seek(max(0, size))
            seal = file.read()
            if seal.startswith(SEAL):
                return seal == SEAL + _checksum(file, size)
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, RuntimeError, zipfile.BadZipFile, EOFError, ValueError):
        return False


def checkpoint_step(path: Path) -> int:
    """Return the optimizer step a checkpoint was taken after."""
    return int(path.stem.removeprefix("step-"))


def load_model(
    run_dir: Path, config: RunConfig, device: str = "cpu", average: bool = False
) -> Transformer:
    """Return the trained model of a run, in evaluation mode.

    It has the last weights, or with ``average`` their average.

    Raises:
        InputError: where the run has no checkpoint, one that is damaged or of another model, or no
            average.
    """
    path = newest_checkpoint(run_dir)
    if path is None:
        damaged = " that can be read; remove it and" if checkpoints_of(run_dir) else " yet;"
        raise InputError(f"{run_dir} has no checkpoint{damaged} train it first.")
    model = sketch_model(config.model).to_empty(device=device)
    try:
        last, averaged = _weights(path)
        model.load_state_dict(last)
        # A tied weight is averaged under one of its two names.
        model.load_state_dict(averaged if average else {}, strict=False)
    except RuntimeError:
        raise InputError(
            f"{path} does not fit the model of {run_dir / 'config.yaml'}; one of them was changed "
            "after training."
        ) from None
    if average and not averaged:
        raise InputError(
            f"{path} holds no average of the weights; train with trainer.average=ema or swa."
        )
    return model.eval()


def _prune(run_dir: Path, step: int, count: int = KEPT) -> None:
    """Keep the newest checkpoints up to a step.

    Later ones are damaged, or the run would have continued from them; they would crowd out what is
    saved next.
    """
    there = checkpoints_of(run_dir)
    kept = [path for path in there if checkpoint_step(path) <= step][:count]
    for old in set(there) - set(kept):
        remove(old)


def checkpoints_of(run_dir: Path) -> list[Path]:
    """Return the run's checkpoints, the newest first; copies under other names are none.

    A file comes before the shards of the same step, of which it is what is kept.
    """
    there = [path for path in (run_dir / CHECKPOINTS).glob("*") if NAME.fullmatch(path.name)]
    return sorted(there, key=lambda path: (path.stem, path.suffix == ".ckpt"), reverse=True)


def _weights(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the last weights of a checkpoint, and their average where it has one."""
    prefix = "model."
    try:
        checkpoint = open_checkpoint(path)
        state = shards.whole(checkpoint["state_dict"])
        averaged = checkpoint.get(CALLBACKS, {}).get(AVERAGE, {})
    except (OSError, RuntimeError, EOFError, LookupError, pickle.UnpicklingError):
        raise InputError(
            f"{path} cannot be read as a checkpoint; remove it and train the run again."
        ) from None
    last = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    return last, averaged


def _checksum(file: BinaryIO, size: int) -> bytes:
    """Return the CRC-32 of a file's first bytes, leaving the file at its end."""
    file.seek(0)
    checksum, left = 0, size
    while left and (chunk := file.read(min(left, CHUNK_BYTES))):
        checksum = zlib.crc32(chunk, checksum)
        left -= len(chunk)
    file.seek(0, os.SEEK_END)
    return checksum.to_bytes(4, "little")
