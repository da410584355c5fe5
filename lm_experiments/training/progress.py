"""How far a run is, while it is trained: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task
from rich.text import Text

from lm_experiments.rundir.words import duration
from lm_experiments.training.batches import evaluated_tokens
from lm_experiments.training.config import RunConfig

BAR_WIDTH = 20
# A name is not shortened to less while something else can be left out.
NAME_WIDTH = 16
# A forward pass alone is a third of a training step.
FORWARD = 1 / 3


class RunClock:
    """The time left of a run, with the passes over the validation set that are still to come.

    Args:
        config: the run's configuration.
        evaluated: tokens of a point of the validation curve, and of what follows the last step.
    """

    def __init__(self, config: RunConfig, evaluated: tuple[int, int]) -> None:
        self.trainer = config.trainer
        # What a pass costs in steps, before one was timed.
        self.pass_steps = FORWARD * evaluated[0] / config.tokens_per_step
        self.last_share = evaluated[1] / evaluated[0]
        self.passes = 0
        self.evaluating = 0.0
        self.first_step = 0
        self.began = self.paused = 0.0

    def start(self, step: int, now: float) -> None:
        """Start at a step; times are seconds of one clock."""
        self.first_step, self.began = step, now

    def pause(self, now: float) -> None:
        """Begin a validation."""
        self.paused = now

    def resume(self, now: float) -> None:
        """End a validation."""
        self.evaluating += now - self.paused
        self.passes += 1

    def left(self, step: int, now: float) -> float | None:
        """Return the seconds left after a step, None before the first."""
        if step <= self.first_step:
            return None
        per_step = (now - self.began - self.evaluating) / (step - self.first_step)
        per_pass = self.evaluating / self.passes if self.passes else self.pass_steps * per_step
        trainer = self.trainer
        planned = math.ceil(trainer.max_steps / trainer.val_every)
        passes = planned - self.first_step // trainer.val_every - self.passes
        return per_step * (trainer.max_steps - step) + per_pass * (passes + self.last_share)


class RunProgress(Callback):
    """One line: the step, validation loss, time left, loss, learning rate, tokens per second.

    In a terminal it is a progress bar; elsewhere one line is printed per validation.

    Args:
        label: the run's name.
        mark: what tells runs apart whose names begin alike.
    """

    def __init__(self, label: str, mark: str) -> None:
        self.label, self.mark = label, mark
        self.moving = sys.stderr.isatty()
        console = Console(stderr=True)
        line = BarLine(console)
        self.bar = Progress(line, console=console, disable=not self.moving, transient=True)
        self.task = self.bar.add_task(label, mark=mark, left=None, validated=[], numbers=[])

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Show the bar."""
        data = trainer.datamodule.data  # type: ignore[attr-defined]
        self.clock = RunClock(pl_module.config, evaluated_tokens(pl_module.config, data))
        self.clock.start(trainer.global_step, time.monotonic())
        self.bar.update(self.task, total=trainer.max_steps, completed=trainer.global_step)
        self.bar.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        """Move the bar."""
        if self.moving:
            step, history = trainer.global_step, pl_module.history
            self.bar.update(
                self.task,
                completed=step,
                left=self.clock.left(step, time.monotonic()),
                validated=_validated(history.curve),
                numbers=_numbers(history.newest),
            )

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Time the validation."""
        if trainer.state.fn == TrainerFn.FITTING:
            self.clock.pause(time.monotonic())

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Print a line, where there is no bar."""
        if trainer.state.fn == TrainerFn.FITTING:
            self.clock.resume(time.monotonic())
        if not self.moving:
            step, history = trainer.global_step, pl_module.history
            parts = [f"step {step}/{trainer.max_steps}"]
            if pl_module.of_average:
                parts += [*_validated(history.average), "by the average of the weights"]
            elif pl_module.last_pass:
                parts += [*_validated(history.validation), "over the whole set"]
            else:
                parts += [*_validated(history.curve), *_numbers(history.newest)]
            if step < trainer.max_steps and (left := self.clock.left(step, time.monotonic())):
                parts.append(f"about {duration(left)} left")
            print(f"{self.label}: {', '.join(parts)}", file=sys.stderr, flush=True)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Remove the bar."""
        self.bar.stop()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Remove the bar."""
        self.bar.stop()


class BarLine(ProgressColumn):
    """A run in one line of a terminal's width, with a bar where there is room for one."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def render(self, task: Task) -> Text:
        """Return the line."""
        done, total, left = int(task.completed), int(task.total or 0), task.fields["left"]
        parts = [f"{done}/{total}", *task.fields["validated"]]
        if left is not None:
            parts.append(f"{duration(left)} left")
        # In the last column some terminals begin a new line.
        width = self.console.width - 1
        line = bar_line(task.description, task.fields["mark"], parts, task.fields["numbers"], width)
        room = min(BAR_WIDTH, width - len(line) - 1)
        filled = round(room * done / total) if total else 0
        bar = f" {'#' * filled}{'.' * (room - filled)}" if room >= BAR_WIDTH // 2 else ""
        return Text(line + bar, no_wrap=True, overflow="crop")


def bar_line(
    label: str, mark: str, parts: Sequence[str], numbers: Sequence[str], width: int
) -> str:
    """Return a run's line of at most ``width`` characters, in which no number is cut.

    Args:
        label: the run's name, shortened or left out where it has to be.
        mark: what a shortened name ends in, so that it stays unique.
        parts: what is always said.
        numbers: what is said as far as there is room, the most important first.
    """
    said = list(parts)
    least = min(len(label), NAME_WIDTH)
    for number in numbers:
        if least + 2 + len(", ".join([*said, number])) <= width:
            said.append(number)
    text = ", ".join(said)
    room = width - len(text) - 2
    if len(label) > room:
        label = f"{label[: room - len(mark) - 1]}~{mark}" if room > len(mark) else ""
    return f"{label}: {text}" if label else text


def _validated(row: dict[str, float]) -> list[str]:
    return [f"val loss {row['val/loss']:.4f}"] if row else []


def _numbers(row: dict[str, float]) -> list[str]:
    """Return what was logged last, the most important first."""
    if not row:
        return []
    return [
        f"loss {row['train/loss']:.3f}",
        f"{row['train/tokens_per_second']:,.0f} tokens/s",
        f"lr {row['train/learning_rate']:.1e}",
    ]
