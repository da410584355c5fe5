"""From a composed configuration to a planned run: checked, counted, named, and looked up."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lm_experiments.data import DataConfig, PreparedData, prepare
from lm_experiments.errors import InputError
from lm_experiments.fields import Use, fields_of
from lm_experiments.launch.task import Task
from lm_experiments.model import Ledger, count, sketch_model
from lm_experiments.registry import AXES, Choice
from lm_experiments.rundir.identity import Identity, write_identity
from lm_experiments.rundir.names import HASH_END
from lm_experiments.rundir.parse import convert
from lm_experiments.rundir.pause import write_pause
from lm_experiments.rundir.results import WAITING, Result, read_result
from lm_experiments.study.command_config import CommandConfig
from lm_experiments.study.expand import RunSpec
from lm_experiments.study.hints import meant
from lm_experiments.study.identity import (
    arm_label,
    config_hash,
    differences,
    differing_keys,
    directory_name,
    hash_of_values,
    hashed_values,
)
from lm_experiments.study.keys import SHORT, flat
from lm_experiments.training.config import RunConfig, load_config, run_config, save_config
from lm_experiments.training.devices import find_device

# Hashed values that follow from the corpus and the tokenizer.
OF_THE_TEXT = ["data_hash", "model.end_of_text", "model.vocab_size", "tokenizer.files"]
# Keys of the composed configuration that a run's configuration does not have.
OF_THE_COMMAND = (*(f.name for f in fields_of(CommandConfig)), *SHORT)

# An interpolation of the seed, such as ${seed} or ${..seed}.
OF_SEED = re.compile(r"\$\{[^}]*\bseed\b")

# Sections with keys of their own, and where groups belong whose name is no section.
SECTIONS = ("model", "data", "trainer", "tokenizer", "optimizer", "schedule", "logger")
PACKAGES = {"arch": "_global_", "size": "model", **{axis: f"model.{axis}" for axis in AXES}}


@dataclass(frozen=True)
class PlannedRun:
    """A run that passed every check and has its place.

    Attributes:
        directory: where it is, or will be.
        values: what ``config_hash`` is the hash of, by dotted key.
        ledger: the parameters and FLOPs of its architecture.
        result: what its directory says of it already, None where nothing does.
        spec: how it was declared.
        changes: the keys of ``values`` that its arm changes, beside what all arms share.
        by_seed: the keys whose values follow from the seed.
        source: the directory of another sweep that has the run done, to be copied from there; the
            result is that one's.
        seconds: what it is expected to take, None where that is not known.
        until: the step after which it rests, None to train it to the end.
        step_time: of a step, relative to the baseline's, where steps were timed.
        below: the directory of the run on a ladder's rung below that it goes on from, where the
            rungs have one trunk, and `begins`: after how many steps.
    """

    config: RunConfig
    directory: Path
    config_hash: str
    data_hash: str
    values: Mapping[str, Any]
    ledger: Ledger
    result: Result | None
    spec: RunSpec = field(default_factory=RunSpec)
    changes: tuple[str, ...] = ()
    by_seed: tuple[str, ...] = ()
    source: Path | None = None
    seconds: float | None = None
    until: int | None = None
    step_time: float | None = None
    below: Path | None = None
    begins: int = 0

    @property
    def status(self) -> str:
        """Done, failed or interrupted as its result says, else waiting."""
        return self.result.status if self.result else WAITING

    @property
    def flops(self) -> float:
        """The FLOPs of its whole training."""
        return float(self.ledger.training_flops_per_token) * self.config.tokens

    @property
    def own_flops(self) -> float:
        """Those of the steps that it does not take over from the rung below."""
        return self.flops * (1 - self.begins / self.config.trainer.max_steps)

    @property
    def task(self) -> Task:
        """What launch is given of the run."""
        return Task(self.directory, tuple(self.config.code_paths), self.config.trainer.devices)


def plain(config: DictConfig) -> dict[str, Any]:
    """Return composed values, resolved, as plain ones; InputError where one is not set."""
    ours = OmegaConf.masked_copy(config, [key for key in map(str, config) if key != "hydra"])
    missing = sorted(OmegaConf.missing_keys(ours))
    if missing:
        raise InputError(f"{missing[0]} is not set; type {missing[0]}=...")
    values = OmegaConf.to_container(ours, resolve=True)
    assert isinstance(values, dict)
    for key, value in values.items():
        _check_section(str(key), value)
    return {str(key): value for key, value in values.items()}


def _check_section(key: str, value: Any) -> None:
    """Refuse what is no key, a word for a section, and a file that does not say its section."""
    if package := PACKAGES.get(key):
        raise InputError(
            f"the file of {key}=... does not say what its keys belong to; its first line must be "
            f"# @package {package}"
        )
    if key not in (*OF_THE_COMMAND, *(field.name for field in fields_of(RunConfig))):
        raise InputError(f"{key} is not a key; {meant(key, str(value))}")
    if key in SECTIONS and not isinstance(value, Mapping):
        raise InputError(f"{key}={value} is not how keys of {key} are set; {meant(key, value)}")


def checked(values: Mapping[str, Any]) -> RunConfig:
    """Check everything that can be checked without the corpus: cheap, so that all runs are first.

    The vocabulary is not known yet; the model's size in it, and the token that ends a document,
    are those of the tokenizer asked for.
    """
    vocabulary = convert(values["tokenizer"].get("vocab_size") or 2, int, "tokenizer.vocab_size")
    model = {**values["model"], "vocab_size": vocabulary}
    if model.get("document_mask"):
        model["end_of_text"] = vocabulary - 1
    known = {key: value for key, value in values.items() if key not in OF_THE_COMMAND}
    for section in ("data", "tokenizer"):
        if path := known[section].get("path"):
            # A run can be opened from any folder.
            absolute = str(Path(path).expanduser().absolute())
            known[section] = {**known[section], "path": absolute}
    if isinstance(known["code_paths"], str):
        known["code_paths"] = [known["code_paths"]]
    if known["arm"] is None:
        known["arm"] = arm_label(known["arm_overrides"])
    config = run_config({**known, "model": model})
    config.logger.check()
    count(config.model)
    find_device(config)
    return config


def planned(config: RunConfig, spec: RunSpec | None = None) -> PlannedRun:
    """Complete a checked configuration with its corpus, and find its directory.

    Raises:
        ValueError: where the corpus does not serve, or the place is taken by something else.
    """
    data, config = corpus_of(config), with_vocabulary(config)
    _check_lengths(config, data)
    values = hashed_values(config, data.data_hash, find_device(config).precision)
    identity = hash_of_values(values)
    directory = _place(config, identity, data.data_hash)
    return PlannedRun(
        config=config,
        directory=directory,
        config_hash=identity,
        data_hash=data.data_hash,
        values=values,
        ledger=count(config.model),
        result=read_result(directory),
        spec=spec or RunSpec(),
    )


def with_vocabulary(config: RunConfig) -> RunConfig:
    """Return a checked configuration with the vocabulary of its corpus."""
    tokenizer = corpus_of(config).tokenizer
    end = tokenizer.end_of_text_id if config.model.document_mask else None
    model = dataclasses.replace(config.model, vocab_size=tokenizer.vocab_size, end_of_text=end)
    return dataclasses.replace(config, model=model)


def _check_lengths(config: RunConfig, data: PreparedData) -> None:
    """Raise `InputError` where the context does not serve the corpus, or its held-out parts."""
    length = config.model.context_length
    data.train.check(length)
    longest = max(part.length(length) for part in data.held_out.values())
    if longest > length:
        sketch_model(config.model).position.extend(longest)


def distinct(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return each run once: specs that differ in nothing that counts lead to the same run."""
    return list({run.config_hash: run for run in reversed(runs)}.values())[::-1]


def arm_changes(run: PlannedRun, base: RunConfig) -> tuple[str, ...]:
    """Return the hashed keys, the seed aside, in which a run differs from ``base``.

    ``base`` is checked, and lacks its corpus: where the text and its tokens are asked for alike,
    they are the run's.
    """
    model, own = base.model, run.config.model
    end = own.end_of_text if base.model.document_mask else None
    base = dataclasses.replace(
        base,
        seed=run.config.seed,
        model=dataclasses.replace(model, vocab_size=own.vocab_size, end_of_text=end),
    )
    values = hashed_values(base, run.data_hash, find_device(base).precision)
    changed = differing_keys(values, run.values)
    if (base.data.corpus, base.tokenizer) != (run.config.data.corpus, run.config.tokenizer):
        changed += OF_THE_TEXT
    return tuple(dict.fromkeys(changed))


def following_seed(config: DictConfig) -> tuple[str, ...]:
    """Return the keys whose values follow from ``seed``, and what follows from them in turn."""
    if OF_SEED.search(str(OmegaConf.to_container(config, resolve=False))) is None:
        return ()
    ours = OmegaConf.masked_copy(config, [key for key in map(str, config) if key != "hydra"])
    values = flat(plain(ours))
    ours.seed += 1
    keys = [key for key in differing_keys(values, flat(plain(ours))) if key != "seed"]
    sections = {key.partition(".")[0] for key in keys}
    text = OF_THE_TEXT if sections & {"data", "tokenizer"} else []
    return (*keys, *text, *(["model.ffn_width"] if "model" in sections else []))


def check_one_each(runs: Sequence[PlannedRun]) -> None:
    """Raise InputError where one arm and seed has two configurations, or the sweep two folders."""
    seen: dict[tuple[Any, ...], PlannedRun] = {}
    for run in runs:
        spec, arm, seed = run.spec, run.config.arm, run.config.seed
        other = seen.setdefault((arm, seed, spec.role, *sorted(spec.setting.items())), run)
        if other.config_hash != run.config_hash:
            raise InputError(
                f"Arm {arm!r} has two configurations for seed {seed} "
                f"({differences(other.values, run.values)}); leave arm=... out, so that each has "
                "a row of its own, or give each a command with a name=... of its own."
            )
    folders = sorted({str(run.directory.parent) for run in runs})
    if len(folders) > 1:
        raise InputError(
            f"The runs of a sweep belong in one folder, and not in {' and '.join(folders[:2])}; "
            "type a runs_dir=... that is the same for all."
        )


def make_directory(run: PlannedRun) -> None:
    """Make the run directory with what training it needs.

    One that is there keeps its names. Where it is trained, and who watches, is as asked for now.
    """
    run.directory.mkdir(parents=True, exist_ok=True)
    if not (run.directory / "config.yaml").exists():
        save_config(run.config, run.directory)
    else:
        there = load_config(run.directory)
        names = {f.name: getattr(there, f.name) for f in fields_of(RunConfig) if f.use is Use.NAME}
        if (config := dataclasses.replace(run.config, **names)) != there:
            save_config(config, run.directory)
    write_pause(run.directory, run.until)
    write_identity(run.directory, Identity(run.config_hash, run.data_hash, dict(run.values)))


def corpus_of(config: RunConfig) -> PreparedData:
    """Return the run's corpus, prepared if need be; a process does this once for each corpus."""
    return _prepared(config.data.corpus, config.tokenizer, config.cache_dir)


@cache
def _prepared(corpus: DataConfig, tokenizer: Choice, cache_dir: str) -> PreparedData:
    return prepare(corpus, tokenizer, Path(cache_dir).expanduser())


def _place(config: RunConfig, identity: str, data_hash: str) -> Path:
    """Return the run's directory: where a run of this identity lies already, or a new name."""
    sweep = Path(config.runs_dir).expanduser() / str(config.name)
    known = sorted(sweep.glob(f"*-{identity[:HASH_END]}"))
    if not known:
        return sweep / directory_name(config.arm, config.seed, identity)
    # Until it has its configuration, a directory holds nothing but what is being written to it.
    if not all(path.name.startswith(".") for path in known[0].iterdir()):
        there = load_config(known[0])
        if config_hash(there, data_hash, find_device(there).precision) != identity:
            raise InputError(
                f"{known[0]} holds another run than the one asked for; move it away, or type "
                "name=... to use another folder."
            )
    return known[0]
