"""The losses of a sweep's runs, computed anew from their checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.progress import track

from lm_experiments.errors import InputError
from lm_experiments.evaluation import EncodedText, score
from lm_experiments.report.collect import Run, Sweep
from lm_experiments.report.consistency import NOT_KNOWN, Answer, answer_of, trained
from lm_experiments.rundir.results import Result
from lm_experiments.study.open_run import open_run
from lm_experiments.training.checkpoints import checkpoint_step, newest_checkpoint
from lm_experiments.training.devices import cpu_threads

QUESTION = "losses computed anew from the checkpoints"
# Nats per token by which two machines may differ, by the precision of training.
TOLERANCES = {"32-true": 1e-4}
OTHER_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Recomputed:
    """A run's loss by its result and by its checkpoint, in nats per token."""

    run: Run
    loss: float

    @property
    def difference(self) -> float:
        """By the checkpoint minus by the result."""
        return self.loss - (self.run.result.reported_loss or 0.0)

    @property
    def conditions(self) -> tuple[object, ...]:
        """What has to be the same here and there for the same bits to come out."""
        result = self.run.result
        torch_version = result.versions.get("torch")
        return result.device, result.precision, result.threads, result.world_size, torch_version


def losses_hold(sweep: Sweep) -> Answer:
    """Whether each run's loss is that of its checkpoint on the text it is reported for.

    Where one comes out to the last bit, this is the kind of machine it was made on, and all that
    were made alike must; elsewhere a tolerance holds.
    """
    found, unknown = [], []
    console = Console(stderr=True)
    runs = trained(sweep)
    shown = track(runs, QUESTION, console=console, transient=True, disable=not console.is_terminal)
    for run in shown:
        try:
            found.append(Recomputed(run, recomputed_loss(run)))
        except (ValueError, OSError, RuntimeError) as error:
            unknown.append(f"{run.directory.name}: {error}")
    exact = {each.conditions for each in found if not each.difference}
    faults = [_fault(each) for each in found if not _holds(each, exact)]
    if not found:
        return Answer(QUESTION, NOT_KNOWN, "; ".join(unknown[:1]) or "no run has a final loss")
    return answer_of(QUESTION, faults, unknown, _extent(found))


def recomputed_loss(run: Run) -> float:
    """Return the loss of the last checkpoint, under the conditions of training as far as they are.

    Raises:
        InputError: where there is no checkpoint of the last step, or not the text or the code.
    """
    opened, result = open_run(run.directory), run.result
    path = newest_checkpoint(run.directory)
    if path is None or checkpoint_step(path) != result.steps:
        raise InputError(f"no checkpoint of step {result.steps}")
    device = _device(result)
    config, text = opened.config, EncodedText.of(opened.data.test or opened.data.val)
    model = opened.model(device)
    if result.precision == "bf16-true":
        model.bfloat16()
    mixed = torch.autocast(device, torch.bfloat16, enabled=result.precision == "bf16-mixed")
    with cpu_threads(result.threads), mixed:
        length, size = config.model.context_length, config.data.eval_batch_size
        return score(model, text, length, size).loss


def _holds(each: Recomputed, exact: set[tuple[object, ...]]) -> bool:
    usual = TOLERANCES.get(each.run.result.precision or "", OTHER_TOLERANCE)
    # A loss that is not a number does not hold.
    return abs(each.difference) <= (0.0 if each.conditions in exact else usual)


def _fault(each: Recomputed) -> str:
    told = each.run.result.reported_loss
    return f"{each.run.directory.name}: {each.loss!r}, {told!r} in result.json"


def _extent(found: Sequence[Recomputed]) -> str:
    furthest = max(found, key=lambda each: abs(each.difference))
    if not furthest.difference:
        return f"{len(found)} runs, all equal to the last bit"
    name = furthest.run.directory.name
    return f"{len(found)} runs, at most {abs(furthest.difference):.1e} nats apart ({name})"


def _device(result: Result) -> str:
    return "cuda" if result.device == "cuda" and torch.cuda.is_available() else "cpu"
