"""The configuration of one run, typed and checked; it is what ``config.yaml`` of a run holds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import yaml

from lm_experiments.data import DataConfig, check_pair
from lm_experiments.errors import InputError
from lm_experiments.fields import Use
from lm_experiments.model import ModelConfig
from lm_experiments.registry import (
    AXES,
    GROUPS,
    Choice,
    UnknownComponentError,
    component,
    plain_choice,
)
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.names import CONFIG
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.results import EQUAL
from lm_experiments.rundir.yaml_text import dump_yaml, load_yaml
from lm_experiments.training.logger_config import LoggerConfig
from lm_experiments.training.optimizers import Optimizer, optimizers_that
from lm_experiments.training.schedules import Schedule
from lm_experiments.training.watch_config import DiagnosticsConfig, SamplesConfig

PRECISIONS = ("auto", "32-true", "bf16-mixed", "bf16-true")
ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
STRATEGIES = ("auto", "ddp", "fsdp")
KEEP = ("weights", "checkpoints")
AVERAGES = ("none", "ema", "swa")
# What each average alone reads.
AVERAGE_OPTIONS = {"average_decay": "ema", "average_start": "swa"}
# Where prepared corpora are kept, unless cache_dir says otherwise.
CACHE_VARIABLE = "LM_EXPERIMENTS_CACHE"


@dataclass(frozen=True)
class BatchConfig(DataConfig):
    """The corpus, and how it is batched.

    Attributes:
        batch_size: sequences per optimizer step, over all devices.
        eval_batch_size: sequences per validation batch; it does not change the loss.
    """

    batch_size: int = 16
    eval_batch_size: Annotated[int, Use.PLACE] = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch_size", "eval_batch_size"):
            _check_positive(f"data.{name}", getattr(self, name))

    @property
    def corpus(self) -> DataConfig:
        """The part that says what the corpus is, without how it is batched."""
        names = [field.name for field in dataclasses.fields(DataConfig)]
        return DataConfig(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class TrainerConfig:
    """How long to train, on what devices, and how often to log.

    Attributes:
        max_steps: the budget, in optimizer steps.
        equal: what each arm of a sweep gets as much of as the baseline: steps; or tokens, flops
            or seconds, for which max_steps, and a warm-up that is set, are scaled for each arm.
            Seconds are steps timed before training, without compilation, in turns with the
            baseline's.
        accelerator: the kind of device; auto takes a GPU where there is one, and gpu is cuda.
        devices: devices for one run; each takes its part of every batch, in its own process.
        strategy: what each device holds: ddp, the whole model; fsdp, a shard of it; auto is ddp.
        precision: the numbers of weights and activations; auto is bf16-mixed on a GPU that has
            bfloat16, and 32-true elsewhere.
        threads: CPU threads, shared by the processes; null for all cores. Recorded, since it
            changes the last bits.
        micro_batch_size: sequences per forward pass; null chooses. It does not change the loss.
        activation_checkpointing: whether the backward pass computes each block again instead of
            keeping its activations, which takes about a third more time and much less memory. It
            does not change the result.
        deterministic: whether to use only algorithms that give the same bits each time, which an
            A/A control needs on a GPU; an operation that has none is an error.
        val_every: steps between points of the validation curve; the last step has one.
        val_tokens: tokens of the validation set that the curve is measured on, evenly spaced and
            the same for all runs; null takes all. The loss of the table is always over the whole
            set, by the weights of the last step.
        log_every: steps between rows of training metrics, the only steps that wait for the device.
        checkpoint_every: steps between checkpoints.
        keep: what a run leaves when it is done: weights, its last ones; or checkpoints, its newest
            two with the state of the optimizer. Until then it has two checkpoints to go on from.
        average: an average of the weights of all steps, kept beside the last ones: ``ema``, by
            which newer ones count more (Polyak and Juditsky 1992), or ``swa``, their plain mean
            towards the end (Izmailov et al. 2018). Training does not see it; its loss on the whole
            validation set is measured after training, beside that of the last weights.
        average_decay: of ``ema``, what the average keeps of itself at each step, at most; at step n
            no more than (n - 1) / (n + 8).
        average_start: of ``swa``, the share of the steps after which the mean begins.
    """

    max_steps: int = 300
    equal: Annotated[str, Use.SOURCE] = "steps"
    accelerator: Annotated[str, Use.PLACE] = "auto"
    devices: Annotated[int, Use.PLACE] = 1
    strategy: Annotated[str, Use.PLACE] = "auto"
    precision: str = "auto"
    threads: Annotated[int | None, Use.PLACE] = None
    micro_batch_size: Annotated[int | None, Use.PLACE] = None
    activation_checkpointing: Annotated[bool, Use.PLACE] = False
    deterministic: Annotated[bool, Use.PLACE] = False
    val_every: Annotated[int, Use.PLACE] = 50
    val_tokens: Annotated[int | None, Use.PLACE] = 8192
    log_every: Annotated[int, Use.PLACE] = 10
    checkpoint_every: Annotated[int, Use.PLACE] = 500
    keep: Annotated[str, Use.PLACE] = "weights"
    average: Annotated[str, Use.LATER] = "none"
    average_decay: Annotated[float, Use.LATER] = 0.999
    average_start: Annotated[float, Use.LATER] = 0.75

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is int:
                _check_positive(f"trainer.{name}", value)
        _one_of("trainer.equal", self.equal, EQUAL)
        _one_of("trainer.precision", self.precision, PRECISIONS)
        _one_of("trainer.accelerator", self.accelerator, ACCELERATORS)
        _one_of("trainer.strategy", self.strategy, STRATEGIES)
        _one_of("trainer.keep", self.keep, KEEP)
        if self.devices == 1 and self.strategy != "auto":
            raise InputError(
                f"trainer.strategy={self.strategy} is for several devices and trainer.devices=1; "
                "type trainer.devices=2 or more, or trainer.strategy=auto."
            )
        self._check_average()

    def _check_average(self) -> None:
        _one_of("trainer.average", self.average, AVERAGES)
        if self.average != "none" and self.strategy == "fsdp":
            raise InputError(
                f"trainer.average={self.average} needs whole weights, which trainer.strategy=fsdp "
                "cuts into shards; type trainer.strategy=ddp, or trainer.average=none."
            )
        for name, reader in AVERAGE_OPTIONS.items():
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"trainer.{name}={value:g} must be 0 or more, and below 1.")
            if value != getattr(TrainerConfig, name) and self.average != reader:
                raise InputError(
                    f"trainer.{name}={value:g} is not read with trainer.average={self.average}; "
                    f"type trainer.average={reader} to use it."
                )

    @property
    def resolved_strategy(self) -> str:
        """How the devices share the model: single, ddp or fsdp."""
        if self.devices == 1:
            return "single"
        return "ddp" if self.strategy == "auto" else self.strategy


@dataclass(frozen=True)
class RunConfig:
    """One training, completely.

    Attributes:
        seed: initialises the model, and orders and draws the data.
        name: the sweep's folder under runs_dir; null names it after what is swept.
        arm: the run's row in the table; null names it after the choices typed.
        arm_overrides: the choices that make the arm, as typed.
        control: the label of an A/A control, a run that repeats another on purpose.
        compile: whether to compile the model; auto does on a GPU that has Triton where the longest
            run of the command gains by it, then in all its runs.
        runs_dir: the folder of all sweeps.
        cache_dir: the folder of prepared corpora, shared by all sweeps.
        code_paths: your Python files that register components: code_paths=[my_norm.py].
    """

    model: ModelConfig
    data: BatchConfig
    tokenizer: Choice
    optimizer: Optimizer
    schedule: Schedule
    trainer: TrainerConfig
    logger: Annotated[LoggerConfig, Use.PLACE]
    diagnostics: Annotated[DiagnosticsConfig, Use.PLACE] = field(default_factory=DiagnosticsConfig)
    samples: Annotated[SamplesConfig, Use.PLACE] = field(default_factory=SamplesConfig)
    seed: Annotated[int, Use.SEED] = 0
    name: Annotated[str | None, Use.NAME] = None
    arm: Annotated[str, Use.NAME] = "baseline"
    arm_overrides: Annotated[list[str], Use.NAME] = field(default_factory=list)
    control: str | None = None
    compile: Annotated[bool | str, Use.PLACE] = "auto"
    runs_dir: Annotated[str, Use.PLACE] = "runs"
    cache_dir: Annotated[str, Use.PLACE] = field(
        default_factory=lambda: os.environ.get(CACHE_VARIABLE, "~/.cache/lm_experiments")
    )
    code_paths: Annotated[list[str], Use.PLACE] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed={self.seed} must be 0 or more.")
        if self.name is not None and (set(self.name) & set("/\\") or self.name in (".", "..", "")):
            raise InputError(
                f"name={self.name!r} must be the name of one folder under runs_dir, without "
                "slashes; type runs_dir=... to choose where that is."
            )
        if isinstance(self.compile, str):
            _one_of("compile", self.compile, ("auto",))
        self.schedule.factor(1, self.trainer.max_steps)
        self._check_devices()
        _ = self.diagnostics_every, self.samples_every
        self.resolved_optimizer.check(self.model)
        check_pair(self.data, self.tokenizer)

    def _check_devices(self) -> None:
        batch, devices = self.data.batch_size, self.trainer.devices
        if batch % devices:
            raise InputError(
                f"data.batch_size={batch} cannot be shared by trainer.devices={devices}; type a "
                f"multiple of {devices}, such as data.batch_size={-(-batch // devices) * devices}."
            )
        if self.trainer.strategy == "fsdp" and not self.optimizer.elementwise:
            known = [f"optimizer={name}" for name in optimizers_that("elementwise")]
            raise InputError(
                f"trainer.strategy=fsdp cuts matrices into shards, which optimizer="
                f"{self.optimizer.name} needs whole; type trainer.strategy=ddp, or one of "
                f"{', '.join(known)}."
            )

    @property
    def diagnostics_every(self) -> int:
        """Steps between rows of diagnostics, 0 for none."""
        return self.diagnostics.steps(self.trainer.log_every, self.trainer.resolved_strategy)

    @property
    def samples_every(self) -> int:
        """Steps between generated texts, 0 for none."""
        return self.samples.steps(self.trainer.resolved_strategy)

    @property
    def resolved_optimizer(self) -> Optimizer:
        """The optimizer for batches of this size."""
        return self.optimizer.at(self.tokens_per_step)

    @property
    def tokens(self) -> int:
        """Training tokens of the whole run."""
        return self.trainer.max_steps * self.tokens_per_step

    @property
    def tokens_per_step(self) -> int:
        """Training tokens of one optimizer step, over all devices."""
        return self.data.batch_size * self.model.context_length


def run_config(values: Mapping[str, Any]) -> RunConfig:
    """Turn a composed configuration, as plain values, into a checked `RunConfig`.

    Raises:
        InputError: one sentence that names the key, the value and what is allowed.
    """
    axes = {axis: partial(build_choice, axis) for axis in AXES}
    sections: dict[str, Callable[[Any], Any]] = {
        "model": lambda values: build(ModelConfig, values, "model", axes),
        "tokenizer": partial(build_choice, "tokenizer"),
    }
    sections |= {group: partial(_built, group) for group in ("optimizer", "schedule", "logger")}
    return build(RunConfig, values, "", sections)


def plain_values(config: RunConfig) -> dict[str, Any]:
    """Return a `RunConfig` as nested plain values: the inverse of `run_config`."""
    return {key: _plain(key, value) for key, value in vars(config).items()}


def load_config(run_dir: Path) -> RunConfig:
    """Read the configuration of a run directory.

    Raises:
        InputError: where the folder is not a run directory of this program.
    """
    path = run_dir / CONFIG
    if not path.is_file():
        raise InputError(f"{run_dir} is not a run directory: it has no config.yaml.")
    try:
        values = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict) or "model" not in values:
        raise InputError(f"{path} was not written by lm_experiments: it has no model section.")
    try:
        return run_config(values)
    except UnknownComponentError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is damaged, or of another version: {error}") from None


def save_config(config: RunConfig, run_dir: Path) -> None:
    """Write ``config.yaml`` whole or not at all."""
    write_atomically(run_dir / CONFIG, dump_yaml(plain_values(config)))


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, Choice):
        return plain_choice(key, value)
    if isinstance(value, ModelConfig):
        return {name: _plain(name, part) for name, part in vars(value).items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # The name of an optimizer, a schedule or a logger belongs to its class.
        named = {"name": type(value).name} if key in GROUPS else {}  # type: ignore[attr-defined]
        return named | dataclasses.asdict(value)
    return value


def build_choice(group: str, values: Any) -> Choice:
    """Build the choice of a component from plain values: its name and its options.

    Raises:
        InputError: for an unknown name, or an option the component does not have.
    """
    options = _built(group, values)
    return Choice(values["name"], options)


def _built(group: str, values: Any) -> Any:
    """Build the options of what was chosen for a group, from plain values with its name."""
    key = f"model.{group}" if group in AXES else group
    if not isinstance(values, Mapping):
        raise InputError(f"{key}={values!r} is not how {group} is chosen; type {group}={values}.")
    if not isinstance(values.get("name"), str):
        raise InputError(f"{key}.name is not set; type {group}=... to choose one.")
    options = {name: value for name, value in values.items() if name != "name"}
    return build(component(group, values["name"]).options, options, key)


def _check_positive(key: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{key}={value} must be 1 or more.")


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{key}={value} is not known; it can be {', '.join(allowed)}.")
