"""Read the weights of a Hugging Face model from a folder of safetensors or a loaded model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
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
BUFFERS = re.compile(r"\.(attn|attention)\.(masked_)?bias$|rotary_emb\.inv_freq$")
# The name of the head; the second is that of GPT-NeoX in files.
HEADS = ("lm_head", "embed_out")
LISTED = 10


class Source:
    """The tensors of a Hugging Face model, by their names in the model with a head.

    Attributes:
        name: the name for messages.
        config: the Hugging Face configuration.
        shapes: the shape of each selected tensor.
    """

    shapes: dict[str, Shape]

    def __init__(
        self,
        name: str,
        config: Any,
        list_tensors: Callable[[], Mapping[str, Shape]],
        read: Callable[[str], Tensor],
    ) -> None:
        """Take functions that list all stored tensors, and read one of them by its name."""
        self.name = name
        self.config = config
        self._list_tensors = list_tensors
        self._read = read

    def select(self, prefix: str, *, tied: bool) -> None:
        """Select the parameters of the model with a head, and set `shapes`.

        Args:
            prefix: the name of the base model; missing in files of a base model alone.
            tied: whether the head is tied to the embedding; a stored copy of it is skipped.
        """
        self._stored = self._list_tensors()
        prefixed = any(name.startswith(f"{prefix}.") for name in self._stored)
        self._stored_names = {}
        self.shapes = {}
        for stored_name, shape in self._stored.items():
            name = stored_name if prefixed else f"{prefix}.{stored_name}"
            module, _, rest = stored_name.partition(".")
            if module in HEADS:
                name = f"{HEADS[0]}.{rest}"
            if BUFFERS.search(name) or (tied and name == f"{HEADS[0]}.weight"):
                continue
            self._stored_names[name] = stored_name
            self.shapes[name] = shape

    def read(self, name: str) -> Tensor:
        """Return a selected tensor, possibly without a copy."""
        return self._read(self._stored_names[name])

    def check_tied(self, embedding: str) -> None:
        """Raise an InputError if a stored head differs from the embedding it should be tied to."""
        for head in (name for name in self._stored if name.partition(".")[0] in HEADS):
            stored, tied = self._read(head), self.read(embedding)
            # In a loaded model both are one tensor.
            if stored.data_ptr() != tied.data_ptr() and not torch.equal(stored, tied):
                raise InputError(
                    f"{self.name} has tie_word_embeddings=true, but {head} differs from "
                    f"{embedding}; set tie_word_embeddings to false in its config.json."
                )


def from_model(model: nn.Module) -> Source:
    """Return the tensors of a Hugging Face model in memory."""
    state = model.state_dict()

    def list_tensors() -> dict[str, Shape]:
        return {name: tuple(tensor.shape) for name, tensor in state.items()}

    return Source(type(model).__name__, model.config, list_tensors, state.__getitem__)


def from_folder(path: Path) -> Source:
    """Return the tensors of a folder with ``config.json`` and safetensors, sharded or not.

    A file is mapped anew for each tensor, so that pages already read do not stay in memory.
    """
    config = open_config(path)
    files = _find_files(path)
    file_of: dict[str, Path] = {}

    def list_tensors() -> dict[str, Shape]:
        shapes: dict[str, Shape] = {}
        for file in files:
            with _opened(file) as opened:
                for name in opened.keys():  # noqa: SIM118
                    shapes[name] = tuple(opened.get_slice(name).get_shape())
                    file_of[name] = file
        return shapes

    def read(name: str) -> Tensor:
        with _opened(file_of[name]) as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor

    return Source(str(path), config, list_tensors, read)


def open_config(path: Path) -> Any:
    """Return the Hugging Face configuration of a folder."""
    if not (path / "config.json").is_file():
        raise InputError(f"{path} has no config.json; name a folder written by save_pretrained.")
    return AutoConfig.from_pretrained(path, local_files_only=True)


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
