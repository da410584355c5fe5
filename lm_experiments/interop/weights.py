"""Read the weights of a Hugging Face model from a folder of safetensors or a loaded model."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig

from lm_experiments.errors import InputError

Shape = tuple[int, ...]
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Buffers that older versions of transformers saved with the parameters.
TABLES = re.compile(r"\.(attn|attention)\.(masked_)?bias$|rotary_emb\.inv_freq$")
# The name of the head; the second is that of GPT-NeoX in files.
HEADS = ("lm_head", "embed_out")
LISTED = 10


class Source(ABC):
    """The tensors of a model, by their names in the model with a head.

    Attributes:
        name: the name for messages.
        config: the Hugging Face configuration.
        shapes: the shape of each selected tensor.
    """

    name: str
    config: Any
    shapes: dict[str, Shape]

    @abstractmethod
    def stored(self) -> dict[str, Shape]:
        """Return every stored name with its shape."""

    @abstractmethod
    def read_stored(self, name: str) -> Tensor:
        """Return a tensor by its stored name, possibly without a copy."""

    def select(self, prefix: str, *, tied: bool) -> None:
        """Select the parameters of the model with a head, and set `shapes`.

        Args:
            prefix: the name of the base model; missing in files of a base model alone.
            tied: whether the head is tied to the embedding; a stored copy of it is skipped.
        """
        stored = self.stored()
        prefixed = any(name.startswith(f"{prefix}.") for name in stored)
        self._stored_names = {}
        self.shapes = {}
        for stored_name, shape in stored.items():
            name = self._full_name(stored_name, prefix, prefixed)
            if TABLES.search(name) or (tied and name == f"{HEADS[0]}.weight"):
                continue
            self._stored_names[name] = stored_name
            self.shapes[name] = shape

    def read(self, name: str) -> Tensor:
        """Return a selected tensor, possibly without a copy."""
        return self.read_stored(self._stored_names[name])

    @staticmethod
    def _full_name(name: str, prefix: str, prefixed: bool) -> str:
        module, _, rest = name.partition(".")
        if module in HEADS:
            return f"{HEADS[0]}.{rest}"
        return name if prefixed else f"{prefix}.{name}"


class LoadedModel(Source):
    """A Hugging Face model in memory."""

    def __init__(self, model: nn.Module) -> None:
        self.name = type(model).__name__
        self.config = model.config
        self._state = model.state_dict()

    def stored(self) -> dict[str, Shape]:
        """Return every name with its shape."""
        return {name: tuple(tensor.shape) for name, tensor in self._state.items()}

    def read_stored(self, name: str) -> Tensor:
        """Return the model's own tensor."""
        tensor: Tensor = self._state[name]
        return tensor


class Folder(Source):
    """A folder with ``config.json`` and safetensors, in one file or in shards with an index.

    A file is mapped anew for each tensor, so that pages already read do not stay in memory.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        if not (path / "config.json").is_file():
            raise InputError(
                f"{path} has no config.json; name a folder written by save_pretrained."
            )
        self.config = AutoConfig.from_pretrained(path, local_files_only=True)
        self._files = self._find_files(path)

    def stored(self) -> dict[str, Shape]:
        """Return every stored name with its shape, read from the headers."""
        shapes: dict[str, Shape] = {}
        self._file_of: dict[str, Path] = {}
        for file in self._files:
            with _opened(file) as opened:
                for name in opened.keys():  # noqa: SIM118
                    shapes[name] = tuple(opened.get_slice(name).get_shape())
                    self._file_of[name] = file
        return shapes

    def read_stored(self, name: str) -> Tensor:
        """Return a tensor as a view of the mapped file."""
        with _opened(self._file_of[name]) as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor

    def check_tied(self, embedding: str) -> None:
        """Raise an InputError if a stored head differs from the embedding it should be tied to."""
        stored = [name for name in self.stored() if name.partition(".")[0] in HEADS]
        for head in stored:
            if not torch.equal(self.read_stored(head), self.read(embedding)):
                raise InputError(
                    f"{self.name} has tie_word_embeddings=true, but {head} differs from "
                    f"{embedding}; set tie_word_embeddings to false in its config.json."
                )

    @staticmethod
    def _find_files(path: Path) -> list[Path]:
        if (path / WEIGHTS).is_file():
            return [path / WEIGHTS]
        if not (path / INDEX).is_file():
            raise InputError(
                f"{path} holds neither {WEIGHTS} nor {INDEX}; save the model as safetensors, with "
                "save_pretrained."
            )
        names = set(json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
        absent = sorted(name for name in names if not (path / name).is_file())
        if absent:
            raise InputError(f"{path} lacks {', '.join(absent)}, which its index names.")
        return [path / name for name in sorted(names)]


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file} cannot be read as safetensors: {error}.") from error


def check_tensors(where: str, expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Raise an InputError that lists missing, unexpected and misshapen tensors."""
    misshapen = [
        f"{name}, {_shape(found[name])} instead of {_shape(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    problems = {
        "missing": [name for name in expected if name not in found],
        "not expected": [name for name in found if name not in expected],
        "of another shape": misshapen,
    }
    reasons = "; ".join(f"{what}: {_listed(names)}" for what, names in problems.items() if names)
    if reasons:
        raise InputError(f"{where} does not hold the tensors of its configuration; {reasons}.")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape))
