"""A run directory opened for use: its configuration, its tokenizer, its model; and other texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lm_experiments.conf_dir import conf_dir
from lm_experiments.data import DataConfig, PreparedData, prepare
from lm_experiments.errors import InputError
from lm_experiments.model import Transformer
from lm_experiments.registry import UnknownComponentError
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.results import read_result
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.config import BatchConfig, RunConfig, load_config


@dataclass(frozen=True)
class TrainedRun:
    """A run with the corpus it was trained on, which brings its tokenizer."""

    directory: Path
    config: RunConfig
    data: PreparedData

    def model(self, device: str = "cpu") -> Transformer:
        """Return the newest checkpoint's model, in evaluation mode; see `load_model`."""
        return load_model(self.directory, self.config, device)


def open_run(directory: Path) -> TrainedRun:
    """Open a run directory, which is only read.

    Where its prepared corpus is no longer in the run's cache, it is prepared again.

    Raises:
        InputError: if it is not a run directory, has components that are not known here, or
            the corpus is not the one it was trained on.
    """
    config = _config_of(directory)
    data = prepare(config.data.corpus, config.tokenizer, Path(config.cache_dir).expanduser())
    result = read_result(directory)
    trained_on = (result and result.data_hash) or data.data_hash
    same_size = data.tokenizer.vocab_size == config.model.vocab_size
    if trained_on != data.data_hash or not same_size:
        raise InputError(
            f"The corpus, data.name={config.data.name} data.path={config.data.path}, has changed "
            f"since {directory} was trained, and with it the tokenizer; put the old text back."
        )
    return TrainedRun(directory, config, data)


def _config_of(directory: Path) -> RunConfig:
    runs = sorted(path.parent for path in directory.glob("*/config.yaml"))
    if runs and not (directory / "config.yaml").exists():
        raise InputError(f"{directory} is a sweep; name one of its runs, for example {runs[0]}.")
    try:
        return load_config(directory)
    except UnknownComponentError as error:
        values = yaml.safe_load((directory / "config.yaml").read_text(encoding="utf-8"))
        files = values.get("code_paths") or ["my_block.py"]
        raise InputError(
            f"{error} Where it is a component of your own, name its file again, since no code is "
            f"run from a run directory: code_paths=[{','.join(map(str, files))}]"
        ) from None


def corpus_to_evaluate(name: str, path: str | None, words: Sequence[str]) -> DataConfig:
    """Return a corpus of ``conf/data`` at other values; InputError if a word is wrong."""
    folder = conf_dir() / "data"
    known = sorted(file.stem for file in folder.glob("*.yaml"))
    if name not in known:
        raise InputError(f"--data {name} is not known; it can be {', '.join(known)}.")
    values = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    values.pop("defaults", None)
    if path is not None:
        values["path"] = path
    for word in words:
        key, _, value = word.removeprefix("data.").partition("=")
        values[key] = yaml.safe_load(value)
    return build(BatchConfig, values, "data").corpus
