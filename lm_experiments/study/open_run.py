"""A run directory opened for use: its configuration, its tokenizer, its model; and other texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from lm_experiments.conf_dir import conf_dir
from lm_experiments.data import DataConfig, PreparedData, Tokenizer, load_tokenizer, prepare
from lm_experiments.errors import InputError
from lm_experiments.model import Transformer
from lm_experiments.registry import UnknownComponentError
from lm_experiments.rundir.names import TOKENIZER
from lm_experiments.rundir.parse import build
from lm_experiments.rundir.results import read_result
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.config import BatchConfig, RunConfig, load_config


@dataclass(frozen=True)
class TrainedRun:
    """A run with its tokenizer, and the corpus it was trained on as far as that is still there."""

    directory: Path
    config: RunConfig

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the run; runs of earlier versions have that of their corpus alone.

        Raises `InputError` where it is not the one the run was trained with.
        """
        path, result = self.directory / TOKENIZER, read_result(self.directory)
        if not path.is_file():
            return self.data.tokenizer
        tokenizer = load_tokenizer(path)
        expected = result and result.tokenizer_hash
        if expected not in (None, tokenizer.fingerprint):
            raise InputError(f"{path} is not the tokenizer of the run; put it back from a copy.")
        return tokenizer

    @cached_property
    def data(self) -> PreparedData:
        """The corpus; where it is no longer in the run's cache, it is prepared again.

        Raises `InputError` where it cannot be read, or is not the one the run was trained on.
        """
        config, result = self.config, read_result(self.directory)
        try:
            data = prepare(
                config.data.corpus, config.tokenizer, Path(config.cache_dir).expanduser()
            )
        except InputError as error:
            raise InputError(
                f"The text of {self.directory} is not where it was, or not as it was ({error}); "
                "put it back."
            ) from error
        trained_on = (result and result.data_hash) or data.data_hash
        same_size = data.tokenizer.vocab_size == config.model.vocab_size
        if trained_on != data.data_hash or not same_size:
            raise InputError(
                f"The corpus, data.name={config.data.name} data.path={config.data.path}, has "
                f"changed since {self.directory} was trained; put the old text back."
            )
        return data

    def model(self, device: str = "cpu", average: bool = False) -> Transformer:
        """Return the newest checkpoint's model, in evaluation mode; see `load_model`."""
        return load_model(self.directory, self.config, device, average)


def open_run(directory: Path) -> TrainedRun:
    """Open a run directory, which is only read.

    Raises:
        InputError: if it is not a run directory, or has components that are not known here.
    """
    return TrainedRun(directory, _config_of(directory))


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
        raise InputError(f"data={name} is not known; it can be {', '.join(known)}.")
    values = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    values.pop("defaults", None)
    if path is not None:
        values["path"] = path
    for word in words:
        key, _, value = word.removeprefix("data.").partition("=")
        values[key] = yaml.safe_load(value)
    return build(BatchConfig, values, "data").corpus
