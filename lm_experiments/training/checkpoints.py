"""Checkpoints of a run: whole or absent, the newest one kept."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lm_experiments.model import Transformer, sketch_model

from .config import RunConfig
from .typed import ConfigError

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

FOLDER = "checkpoints"


def save_checkpoint(trainer: Trainer, run_dir: Path) -> Path:
    """Write ``checkpoints/step-NNNNNNNN.ckpt``, then remove the older ones.

    The name holds nothing that a shell or a command line reads otherwise.
    """
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{trainer.global_step:08d}.ckpt"
    temporary = folder / f".{path.name}.part"
    trainer.save_checkpoint(temporary, weights_only=False)
    if trainer.is_global_zero:
        temporary.replace(path)
        for old in folder.glob("step-*.ckpt"):
            if old != path:
                old.unlink()
    return path


def newest_checkpoint(run_dir: Path) -> Path | None:
    """Return the run's newest checkpoint, or None."""
    return max((run_dir / FOLDER).glob("step-*.ckpt"), default=None)


def checkpoint_step(path: Path) -> int:
    """Return the optimizer step a checkpoint was taken after."""
    return int(path.stem.removeprefix("step-"))


def load_model(run_dir: Path, config: RunConfig, device: str = "cpu") -> Transformer:
    """Return the trained model of a run, in evaluation mode.

    Raises:
        ConfigError: where the run has no checkpoint.
    """
    path = newest_checkpoint(run_dir)
    if path is None:
        raise ConfigError(f"{run_dir} has no checkpoint yet; train it first.")
    model = sketch_model(config.model).to_empty(device=device)
    try:
        model.load_state_dict(_weights(path, device))
    except RuntimeError:
        raise ConfigError(
            f"{path} does not fit the model of {run_dir / 'config.yaml'}; one of them was changed "
            "after training."
        ) from None
    return model.eval()


def _weights(path: Path, device: str) -> dict[str, Any]:
    prefix = "model."
    try:
        saved = torch.load(path, map_location=device, weights_only=True, mmap=True)
        state = saved["state_dict"]
    except (OSError, RuntimeError, EOFError, LookupError, pickle.UnpicklingError):
        raise ConfigError(
            f"{path} cannot be read as a checkpoint; remove it and train the run again."
        ) from None
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
