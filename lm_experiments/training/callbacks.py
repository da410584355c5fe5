"""Callbacks of a run: checkpoints, a stop at non-finite numbers, interruption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from lm_experiments.training.checkpoints import open_checkpoint, save_checkpoint, write_whole
from lm_experiments.training.module import LanguageModel
from lm_experiments.training.shards import whole
from lm_experiments.training.signals import StopSignals
from lm_experiments.training.world import SINGLE_PROCESS, World


class AtStepEnd(Callback):
    """Acts after each step, and after its validation where one is due.

    A checkpoint saved here holds all that was logged up to its step; nothing is logged twice.
    """

    def step_over(self, trainer: Trainer, module: LanguageModel) -> None:
        """Act after the current step."""
        raise NotImplementedError

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Act, unless this step's validation is still to come."""
        if trainer.global_step % pl_module.config.trainer.val_every:
            self.step_over(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Act, where this validation belongs to a training step."""
        if trainer.state.fn == TrainerFn.FITTING:
            self.step_over(trainer, pl_module)


class Checkpoints(AtStepEnd):
    """Saves a checkpoint at intervals and at the end; the newest two are kept."""

    def __init__(self, run_dir: Path, every: int) -> None:
        self.run_dir = run_dir
        self.every = every

    def step_over(self, trainer: Trainer, module: LanguageModel) -> None:
        """Save where the interval ends."""
        step = trainer.global_step
        if step % self.every == 0 and step < trainer.max_steps and module.is_finite():
            save_checkpoint(trainer, self.run_dir)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Save at the end of the run, unless its numbers are not finite."""
        if trainer.global_step >= trainer.max_steps and pl_module.is_finite():
            save_checkpoint(trainer, self.run_dir)


class WholeFiles(TorchCheckpointIO):
    """Writes beside the target and renames; Lightning's own goes through another file system."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Write one checkpoint, whole or not at all (see `write_whole`)."""
        write_whole(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """Read one checkpoint, with whole tensors also where it consists of shards."""
        if Path(path).is_dir():
            return dict(whole(open_checkpoint(Path(path))))
        return super().load_checkpoint(path, *args, **options)


class StopAtBadNumbers(Callback):
    """Ends a run whose loss or gradient norm is not finite; it cannot recover.

    Both are checked where they are logged, so it is noticed within one log interval.
    """

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Stop after a logged number that is not finite."""
        if pl_module.history.bad_step is not None:
            trainer.should_stop = True


class Interruption(AtStepEnd):
    """On a signal, saves a checkpoint after the current step and exits.

    All processes stop after the same step, whichever of them received the signal.

    Args:
        begun: called when the first step begins, from when on there is something to save.
    """

    def __init__(
        self,
        run_dir: Path,
        signals: StopSignals,
        world: World = SINGLE_PROCESS,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        self.run_dir = run_dir
        self.signals = signals
        self.world = world
        self.begun = begun

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Defer signals to the end of the step."""
        self.signals.deferred = True
        self.begun()

    def step_over(self, trainer: Trainer, module: LanguageModel) -> None:
        """Save and exit, where a signal came during the step.

        Raises:
            SystemExit: with 128 plus the signal's number, as a shell reports it.
        """
        number = self.world.largest(self.signals.number or 0)
        if number and trainer.global_step < trainer.max_steps:
            # Another process may have received it; this one may still receive it.
            self.signals.is_another(number)
            if module.is_finite():
                save_checkpoint(trainer, self.run_dir)
            raise SystemExit(128 + number)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Stop deferring signals."""
        self.signals.deferred = False
