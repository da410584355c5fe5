"""Where tensors of theirs come from: a folder of safetensors, or a loaded model."""

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
# Fixed tables that older versions of transformers saved beside the parameters.
TABLES = re.compile(r"\.(attn|attention)\.(masked_)?bias$|rotary_emb\.inv_freq$")
# The head of GPT-NeoX in files, and in models loaded from them.
HEADS = ("lm_head", "embed_out")
LISTED = 10


class Source(ABC):
    """Tensors by the names that the model with a head has for them.

    Attributes:
        name: what it is called in messages.
        config: their configuration.
        shapes: the shape of each tensor that was selected.
    """

    name: str
    config: Any
    shapes: dict[str, Shape]

    @abstractmethod
    def stored(self) -> dict[str, Shape]:
        """Return every stored name with its shape."""

    @abstractmethod
    def read_stored(self, name: str) -> Tensor:
        """Return a tensor by its stored name; it may be the source's own memory."""

    def select(self, prefix: str, *, tied: bool) -> None:
        """Set `shapes` to the tensors that are parameters of the model with a head.

        Args:
            prefix: of the base model; files of a base model alone lack it.
            tied: whether the head is the embedding, of which a file may hold a second copy.
        """
        stored = self.stored()
        based = any(name.startswith(f"{prefix}.") for name in stored)
        self._stored_names = {}
        self.shapes = {}
        for stored_name, shape in stored.items():
            name = self._full_name(stored_name, prefix, based)
            if TABLES.search(name) or (tied and name == f"{HEADS[0]}.weight"):
                continue
            self._stored_names[name] = stored_name
            self.shapes[name] = shape

    def read(self, name: str) -> Tensor:
        """Return a selected tensor; it may be the source's own memory."""
        return self.read_stored(self._stored_names[name])

    @staticmethod
    def _full_name(name: str, prefix: str, based: bool) -> str:
        module, _, rest = name.partition(".")
        if module in HEADS:
            return f"{HEADS[0]}.{rest}"
        return name if based else f"{prefix}.{name}"


class LoadedModel(Source):
    """A model of theirs in memory."""

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
    """A folder with ``config.json`` and safetensors, in one file or in several with an index.

    A file is mapped anew for each tensor, so that what has been read does not stay in memory.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        if not (path / "config.json").is_file():
            raise InputError(
                f"{path} has no config.json; name a folder that save_pretrained wrote."
            )
        self.config = AutoConfig.from_pretrained(path, local_files_only=True)
        self._files = self._find_files(path)

    def stored(self) -> dict[str, Shape]:
        """Return every stored name with its shape, from the headers alone."""
        shapes: dict[str, Shape] = {}
        self._file_of: dict[str, Path] = {}
        for file in self._files:
            with _opened(file) as opened:
                for name in opened.keys():  # noqa: SIM118
                    shapes[name] = tuple(opened.get_slice(name).get_shape())
                    self._file_of[name] = file
        return shapes

    def read_stored(self, name: str) -> Tensor:
        """Return a tensor that is a view of the mapped file."""
        with _opened(self._file_of[name]) as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor

    def check_tied(self, embedding: str) -> None:
        """Refuse a stored head that is not the embedding, where the configuration ties them.

        Raises:
            InputError: naming both.
        """
        stored = [name for name in self.stored() if name.partition(".")[0] in HEADS]
        for head in stored:
            if not torch.equal(self.read_stored(head), self.read(embedding)):
                raise InputError(
                    f"{self.name} has tie_word_embeddings=true, and {head} that differs from "
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
    """Refuse tensors that are not those of a configuration.

    Raises:
        InputError: listing what is missing, what is not expected, and what has another shape.
    """
    misshapen = [
        f"{name}, {_shape(found[name])} and not {_shape(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    problems = {
        "missing": [name for name in expected if name not in found],
        "not expected": [name for name in found if name not in expected],
        "of another shape": misshapen,
    }
    told = "; ".join(f"{what}: {_listed(names)}" for what, names in problems.items() if names)
    if told:
        raise InputError(f"{where} does not hold the tensors of its configuration; {told}.")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape))
