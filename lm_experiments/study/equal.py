"""What arms get as much of as the baseline: parameters, tokens, FLOPs or time.

An arm's feed-forward width (match=total) and its steps (trainer.equal) follow from the baseline's,
at what all arms share. Both are hashed as what they come out as.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lm_experiments.benchmark.rounds import Contestant, measure, timed
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.errors import InputError
from lm_experiments.model import build_model, count
from lm_experiments.model.feedforward import enough, nearest_width
from lm_experiments.rundir.results import FLOPS, SECONDS, STEPS
from lm_experiments.study.checks import first_batch
from lm_experiments.study.expand import RunSpec, with_words
from lm_experiments.study.identity import hash_of_values
from lm_experiments.study.plan import with_vocabulary
from lm_experiments.training.config import RunConfig, plain_values
from lm_experiments.training.devices import cpu_threads, find_device

# A step is timed so often, in turns with the baseline's.
ROUNDS = 15
TOTAL = "total"
# Keys of the model that say how it was found, and not what it is.
NOT_TIMED = ("match", "match_tolerance", "d_ff", "ffn_width")


class Equaliser:
    """Sets the width and the steps of arms by those of the baseline.

    Args:
        baseline: gives the words that make the baseline of an arm.
        compose: gives the checked configuration of some words.
        step_times: those the sweep has recorded, see `SweepRecord.step_times`.
        remote: whether runs are trained on other machines.
    """

    def __init__(
        self,
        baseline: Callable[[str], Sequence[str]],
        compose: Callable[[Sequence[str]], RunConfig],
        step_times: Mapping[str, float],
        remote: bool,
    ) -> None:
        self.step_times = dict(step_times)
        self._baseline, self._compose, self._remote = baseline, compose, remote
        self._references: dict[tuple[str, ...], RunConfig] = {}

    def __call__(self, config: RunConfig, spec: RunSpec) -> RunConfig:
        """Return the configuration of a run with as much as the baseline has of what is asked.

        Raises:
            InputError: where that cannot be reached.
        """
        if not _depends_on_baseline(config):
            return config
        words = with_words(spec.common, self._baseline(config.arm))
        if words not in self._references:
            self._references[words] = with_vocabulary(self._compose(words))
        reference, own = self._references[words], with_vocabulary(config)
        if config.model.match == TOTAL and config.model.ffn_width is None:
            own = _with_total(own, count(reference.model).parameters)
        if config.trainer.equal == SECONDS:
            self._time(own, reference)
        ratio = self._cost(reference, config.trainer.equal) / self._cost(own, config.trainer.equal)
        return _with_steps(own, reference, ratio)

    def step_time(self, config: RunConfig) -> float | None:
        """Return the time of a step relative to the baseline's, None where it was not timed."""
        return self.step_times.get(_timed_hash(config)) if config.trainer.equal == SECONDS else None

    def _cost(self, config: RunConfig, equal: str) -> float:
        """Return what a step costs of what is to be equal."""
        if equal == STEPS:
            return 1.0
        if equal == SECONDS:
            return self.step_times[_timed_hash(config)]
        flops = count(config.model).training_flops_per_token if equal == FLOPS else 1
        return float(config.tokens_per_step * flops)

    def _time(self, own: RunConfig, reference: RunConfig) -> None:
        """Time a step of an arm, unless the sweep has done so, and keep what it takes."""
        self.step_times.setdefault(_timed_hash(reference), 1.0)
        if (name := _timed_hash(own)) in self.step_times:
            return
        if self._remote:
            raise InputError(
                "trainer.equal=seconds times steps on this machine, and the launcher trains on "
                "others; type trainer.equal=flops."
            )
        threads = own.trainer.threads
        with cpu_threads(threads):
            turns = {"baseline": _step(reference), "arm": _step(own)}
            self.step_times[name] = float(f"{measure(turns, ROUNDS)[1].ratio:.4g}")


def check_alone(config: RunConfig) -> None:
    """Raise `InputError` for a run by itself that asks for as much as a baseline has."""
    if _depends_on_baseline(config):
        match, equal = config.model.match, config.trainer.equal
        key = f"model.match={match}" if match == TOTAL else f"trainer.equal={equal}"
        raise InputError(
            f"{key} compares arms with a baseline, and this is one run; add -m and arms, or leave "
            "it out."
        )


def _depends_on_baseline(config: RunConfig) -> bool:
    return config.model.match == TOTAL or config.trainer.equal != STEPS


def _with_total(config: RunConfig, parameters: int) -> RunConfig:
    """Return a configuration with the width at which its model has so many parameters."""

    def _of(width: int) -> int:
        return count(replace(config.model, ffn_width=width)).parameters

    if count(config.model).parameters == parameters:
        return config
    unit, tolerance = _of(2) - _of(1), config.model.match_tolerance
    exact = max(1.0, 1 + (parameters - _of(1)) / unit)
    width = nearest_width(exact, lambda n: _of(n) / parameters - 1, tolerance)
    off = _of(width) / parameters - 1
    if abs(off) > tolerance:
        raise InputError(
            f"Arm {config.arm!r} cannot match the baseline's {parameters:,} parameters within "
            f"match_tolerance={tolerance:g}: with a feed-forward of width {width:,} it has "
            f"{_of(width):,}, {off:+.2%}; type match_tolerance={enough(off):g}, or another size."
        )
    return replace(config, model=replace(config.model, ffn_width=width))


def _with_steps(config: RunConfig, reference: RunConfig, ratio: float) -> RunConfig:
    """Return a configuration with so many times the baseline's steps, and a warm-up to fit."""
    trainer, schedule, steps = config.trainer, config.schedule, reference.trainer.max_steps
    if trainer.equal == STEPS:
        return config
    if trainer.max_steps != steps:
        raise InputError(
            f"Arm {config.arm!r} sets trainer.max_steps={trainer.max_steps}, which "
            f"trainer.equal={trainer.equal} sets by the baseline's {steps}; leave one of them out."
        )
    if schedule.warmup_steps is not None:
        schedule = replace(schedule, warmup_steps=round(ratio * schedule.warmup_steps))
    trainer = replace(trainer, max_steps=max(1, round(ratio * steps)))
    return replace(config, trainer=trainer, schedule=schedule)


def _step(config: RunConfig) -> Contestant:
    """Return what times an optimizer step of a run, without Lightning and compilation."""
    device = find_device(config)
    windows = first_batch(config, config.data.batch_size)
    inputs, targets = (part.to(device.type) for part in windows)
    model = build_model(config.model, config.seed).to(device.type)
    model.recompute = config.trainer.activation_checkpointing
    model.dropout_key.set(config.seed, 0, inputs.device)
    loss = partial(model.loss, z_loss=config.model.z_loss)
    step = PlainStep(model, loss, device.micro_batch_size, config.resolved_optimizer)
    return timed(lambda: step(inputs, targets))


def _timed_hash(config: RunConfig) -> str:
    """Return the hash of what determines how long a step takes."""
    values = plain_values(config)
    timed = {key: values["model"][key] for key in values["model"] if key not in NOT_TIMED}
    batch = (config.data.batch_size, config.optimizer.name)
    return hash_of_values({"model": timed, "width": config.model.width, "batch": batch})
