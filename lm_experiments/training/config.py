"""The configuration of one run, typed and checked; it is what ``config.yaml`` of a run holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from lm_experiments.data import DataConfig, TokenizerConfig, check_pair
from lm_experiments.errors import InputError
from lm_experiments.model import AXES, Choice, ModelConfig
from lm_experiments.model.registry import UnknownComponentError, component
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.names import CONFIG
from lm_experiments.rundir.parse import build
from lm_experiments.training.logger_config import LoggerConfig
from lm_experiments.training.optimizers import OPTIMIZERS, Optimizer
from lm_experiments.training.schedules import SCHEDULES, Schedule

PRECISIONS = ("auto", "32-true", "bf16-mixed", "bf16-true")
ACCELERATORS = ("auto", "cpu", "cuda", "mps")
STRATEGIES = ("auto", "ddp", "fsdp")
# Those whose update of an element depends on that element alone.
SHARDED_OPTIMIZERS = [name for name in ("adamw", "lion", "sgd") if name in OPTIMIZERS]


@dataclass(frozen=True)
class BatchConfig(DataConfig):
    """The corpus, and how it is batched.

    Attributes:
        batch_size: sequences per optimizer step, over all devices.
        eval_batch_size: sequences per validation batch; it does not change the loss.
    """

    batch_size: int = 16
    eval_batch_size: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one(self, "data", ("batch_size", "eval_batch_size"))

    @property
    def corpus(self) -> DataConfig:
        """The part that says what the corpus is, without how it is batched."""
        names = [field.name for field in dataclasses.fields(DataConfig)]
        return DataConfig(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class TrainerConfig:
    """How long to train, on what, and how often to look.

    Attributes:
        max_steps: optimizer steps; the budget of the run.
        devices: how many devices, each with a process of its own, share every batch of the run.
        strategy: what several devices hold, each the whole model (``ddp``) or a shard of it
            (``fsdp``); ``auto`` is ``ddp``.
        threads: CPU threads, shared by the processes; None for all cores. Recorded, since it
            changes the last bits.
        precision: ``auto`` is bf16-mixed on a GPU that has bfloat16, float32 elsewhere.
        micro_batch_size: sequences per forward pass; None chooses. It does not change the loss.
        val_every: steps between passes over the whole validation set; the last step has one.
        log_every: steps between rows of training metrics, the only steps that wait for the device.
        checkpoint_every: steps between checkpoints.
    """

    max_steps: int = 300
    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    micro_batch_size: int | None = None
    val_every: int = 50
    log_every: int = 10
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        counts = [f.name for f in dataclasses.fields(self) if "int" in str(f.type)]
        _at_least_one(self, "trainer", counts)
        _one_of("trainer.precision", self.precision, PRECISIONS)
        _one_of("trainer.accelerator", self.accelerator, ACCELERATORS)
        _one_of("trainer.strategy", self.strategy, STRATEGIES)
        if self.devices == 1 and self.strategy != "auto":
            raise InputError(
                f"trainer.strategy={self.strategy} is for several devices and trainer.devices=1; "
                "type trainer.devices=2 or more, or trainer.strategy=auto."
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
        name: the sweep's folder under ``runs_dir``; None names it after what is swept.
        arm: the row of the table this run belongs to; ``arm_overrides`` make the arm.
        control: the label of an A/A control, which repeats another run on purpose.
        compile: true, false, or auto, which compiles on a GPU as far as that works.
        code_paths: Python files of the user's that register components.
    """

    model: ModelConfig
    data: BatchConfig
    tokenizer: TokenizerConfig
    optimizer: Optimizer
    schedule: Schedule
    trainer: TrainerConfig
    logger: LoggerConfig
    seed: int = 0
    name: str | None = None
    arm: str = "baseline"
    arm_overrides: list[str] = field(default_factory=list)
    control: str | None = None
    compile: bool | str = "auto"
    runs_dir: str = "runs"
    cache_dir: str = "~/.cache/lm_experiments"
    code_paths: list[str] = field(default_factory=list)

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
        self.optimizer.check(self.model)
        check_pair(self.data, self.tokenizer)

    def _check_devices(self) -> None:
        batch, devices = self.data.batch_size, self.trainer.devices
        if batch % devices:
            raise InputError(
                f"data.batch_size={batch} cannot be shared by trainer.devices={devices}; type a "
                f"multiple of {devices}, such as data.batch_size={-(-batch // devices) * devices}."
            )
        if self.trainer.strategy == "fsdp" and self.optimizer.name not in SHARDED_OPTIMIZERS:
            raise InputError(
                f"trainer.strategy=fsdp cuts matrices into shards, which optimizer="
                f"{self.optimizer.name} needs whole; type trainer.strategy=ddp, or one of "
                f"{', '.join(f'optimizer={name}' for name in SHARDED_OPTIMIZERS)}."
            )

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
        ValueError: one sentence that names the key, the value and what is allowed.
    """
    return build(RunConfig, values, "", _SECTIONS)


def plain_values(config: RunConfig) -> dict[str, Any]:
    """Return a `RunConfig` as nested plain values: the inverse of `run_config`."""
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    for key in ("data", "tokenizer", "trainer", "logger"):
        values[key] = dataclasses.asdict(values[key])
    for key in ("optimizer", "schedule"):
        values[key] = {"name": values[key].name, **dataclasses.asdict(values[key])}
    values["model"] = _plain_model(config.model)
    return values


def load_config(run_dir: Path) -> RunConfig:
    """Read the configuration of a run directory.

    Raises:
        InputError: where the folder is not a run directory of this program.
    """
    path = run_dir / CONFIG
    if not path.is_file():
        raise InputError(f"{run_dir} is not a run directory: it has no config.yaml.")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
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
    text = yaml.safe_dump(plain_values(config), sort_keys=False, allow_unicode=True)
    write_atomically(run_dir / CONFIG, text)


def _model(values: Mapping[str, Any]) -> ModelConfig:
    return build(ModelConfig, values, "model", {axis: partial(_choice, axis) for axis in AXES})


def _choice(axis: str, values: Any) -> Choice:
    name, options = _name_and_options(f"model.{axis}", axis, values)
    known = component(axis, name)
    return Choice(known.name, build(known.options, options, f"model.{axis}"))


def _name_and_options(key: str, group: str, values: Any) -> tuple[str, dict[str, Any]]:
    """Split a section into what was chosen and its options."""
    if not isinstance(values, Mapping):
        raise InputError(f"{key}={values!r} is not how {group} is chosen; type {group}={values}.")
    if not isinstance(values.get("name"), str):
        raise InputError(f"{key}.name is not set; type {group}=... to choose one.")
    return values["name"], {k: v for k, v in values.items() if k != "name"}


def _plain_model(model: ModelConfig) -> dict[str, Any]:
    values = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    for axis in AXES:
        choice: Choice = values[axis]
        options = choice.options or component(axis, choice.name).options()
        values[axis] = {"name": choice.name, **dataclasses.asdict(options)}
    return values


def _named(group: str, table: Mapping[str, type], values: Any) -> Any:
    name, options = _name_and_options(group, group, values)
    if name not in table:
        raise InputError(f"{group}={name} is not known; {group} can be {', '.join(table)}.")
    return build(table[name], options, group)


_SECTIONS: dict[str, Any] = {
    "model": _model,
    "data": lambda values: build(BatchConfig, values, "data"),
    "tokenizer": lambda values: build(TokenizerConfig, values, "tokenizer"),
    "optimizer": lambda values: _named("optimizer", OPTIMIZERS, values),
    "schedule": lambda values: _named("schedule", SCHEDULES, values),
    "trainer": lambda values: build(TrainerConfig, values, "trainer"),
    "logger": lambda values: build(LoggerConfig, values, "logger"),
}


def _at_least_one(config: Any, path: str, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InputError(f"{path}.{name}={value} must be 1 or more.")


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{key}={value} is not known; it can be {', '.join(allowed)}.")
