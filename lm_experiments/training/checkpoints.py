"""Checkpoints of a run: written atomically, verified by checksum, the newest two kept.

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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch.utils._pytree import tree_leaves

from lm_experiments.errors import InputError
from lm_experiments.model import Transformer, sketch_model
from lm_experiments.rundir.atomic import UNFINISHED, remove_unfinished
from lm_experiments.rundir.names import CHECKPOINTS
from lm_experiments.training.config import RunConfig

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

NAME = re.compile(r"step-[0-9]{8}\.ckpt")
# The newest, and the one before it, should the newest turn out to be damaged.
KEPT = 2
# Where a checkpoint has the state of its optimizers; empty where only the weights were kept.
OPTIMIZERS = "optimizer_states"
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


def save_checkpoint(trainer: Trainer, run_dir: Path) -> Path:
    """Write ``checkpoints/step-NNNNNNNN.ckpt``, then remove all but the newest `KEPT`.

    Raises:
        CheckpointError: see `write_whole`.
    """
    path = run_dir / CHECKPOINTS / f"step-{trainer.global_step:08d}.ckpt"
    trainer.save_checkpoint(path, weights_only=False)
    if trainer.is_global_zero:
        _prune(run_dir, trainer.global_step)
    return path


def keep_weights(run_dir: Path) -> None:
    """Leave the newest checkpoint of a run that goes on no more, without its optimizers.

    Raises:
        CheckpointError: see `write_whole`.
    """
    path = newest_checkpoint(run_dir)
    if path is None:
        return
    checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if checkpoint.get(OPTIMIZERS):
        write_whole({**checkpoint, OPTIMIZERS: []}, path)
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
        temporary.replace(path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError of its archive writer.
        free = shutil.disk_usage(next(folder for folder in path.parents if folder.exists())).free
        raise CheckpointError(
            f"{path} could not be written ({error}); {free:,} bytes are free there."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


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
    saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return path if saved.get(OPTIMIZERS) else None


def is_whole(path: Path) -> bool:
    """Return whether a checkpoint has the checksum it was written with.

    One that was written by something else has only those of its records.
    """
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


def load_model(run_dir: Path, config: RunConfig, device: str = "cpu") -> Transformer:
    """Return the trained model of a run, in evaluation mode.

    Raises:
        InputError: where the run has no checkpoint, or one that is damaged or of another model.
    """
    path = newest_checkpoint(run_dir)
    if path is None:
        damaged = " that can be read; remove it and" if checkpoints_of(run_dir) else " yet;"
        raise InputError(f"{run_dir} has no checkpoint{damaged} train it first.")
    model = sketch_model(config.model).to_empty(device=device)
    try:
        model.load_state_dict(_weights(path, device))
    except RuntimeError:
        raise InputError(
            f"{path} does not fit the model of {run_dir / 'config.yaml'}; one of them was changed "
            "after training."
        ) from None
    return model.eval()


def _prune(run_dir: Path, step: int, count: int = KEPT) -> None:
    """Keep the newest checkpoints up to a step.

    Later ones are damaged, or the run would have continued from them; they would crowd out what is
    saved next.
    """
    there = checkpoints_of(run_dir)
    kept = [path for path in there if checkpoint_step(path) <= step][:count]
    for old in set(there) - set(kept):
        old.unlink()


def checkpoints_of(run_dir: Path) -> list[Path]:
    """Return the run's checkpoints, the newest first; copies under other names are none."""
    there = (run_dir / CHECKPOINTS).glob("step-*.ckpt")
    return sorted((path for path in there if NAME.fullmatch(path.name)), reverse=True)


def _weights(path: Path, device: str) -> dict[str, Any]:
    prefix = "model."
    try:
        saved = torch.load(path, map_location=device, weights_only=True, mmap=True)
        state = saved["state_dict"]
    except (OSError, RuntimeError, EOFError, LookupError, pickle.UnpicklingError):
        raise InputError(
            f"{path} cannot be read as a checkpoint; remove it and train the run again."
        ) from None
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _checksum(file: BinaryIO, size: int) -> bytes:
    """Return the CRC-32 of a file's first bytes, leaving the file at its end."""
    file.seek(0)
    checksum, left = 0, size
    while left and (chunk := file.read(min(left, CHUNK_BYTES))):
        checksum = zlib.crc32(chunk, checksum)
        left -= len(chunk)
    file.seek(0, os.SEEK_END)
    return checksum.to_bytes(4, "little")
