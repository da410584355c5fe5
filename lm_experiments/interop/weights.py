"""Read the weights of a Hugging Face model from a folder of safetensors or a loaded model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig

from lm_experiments.data.lfs import check_pulled
from lm_experiments.errors import InputError

Shape = tuple[int, ...]
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Buffers that older versions of transformers saved with the parameters.
BUFFERS = re.compile(r"\.(attn|attention)\.(masked_)?bias$|rotary_emb\.inv_freq$")
# The name of the head; the second is that of GPT-NeoX in files.
HEADS = ("lm_head", "embed_out")
LISTED = 10


@dataclass(frozen=True)
class Stored:
    """A tensor of a file or of a loaded model; ``read`` may return it without a copy."""

    name: str
    shape: Shape
    read: Callable[[], Tensor]


def stored_tensors(source: Path | nn.Module) -> list[Stored]:
    """Return the tensors of a loaded model, or of a folder of safetensors, sharded or not.

    A file is mapped anew for each tensor, so that pages already read do not stay in memory.
    """
    if isinstance(source, nn.Module):
        state = source.state_dict()
        return [
            Stored(name, tuple(t.shape), partial(state.__getitem__, name))
            for name, t in state.items()
        ]
    found = []
    for file in _find_files(source):
        with _opened(file) as opened:
            for name in opened.keys():  # noqa: SIM118
                shape = tuple(opened.get_slice(name).get_shape())
                found.append(Stored(name, shape, partial(_read, file, name)))
    return found


def parameters(stored: Iterable[Stored], prefix: str) -> dict[str, Stored]:
    """Return the parameters by their names in the model with a head.

    ``prefix`` is the name of the base model, which files of a base model alone lack.
    """
    stored = list(stored)
    prefixed = any(tensor.name.startswith(f"{prefix}.") for tensor in stored)
    found = {}
    for tensor in stored:
        module, _, rest = tensor.name.partition(".")
        name = tensor.name if prefixed else f"{prefix}.{tensor.name}"
        name = f"{HEADS[0]}.{rest}" if module in HEADS else name
        if not BUFFERS.search(name):
            found[name] = tensor
    return found


def check_tied(where: str, head: Stored, embedding: Stored) -> None:
    """Raise an InputError if a stored head differs from the embedding it should be tied to."""
    one, other = head.read(), embedding.read()
    # In a loaded model both are one tensor.
    if one.data_ptr() != other.data_ptr() and not torch.equal(one, other):
        raise InputError(
            f"{where} has tie_word_embeddings=true, but {head.name} differs from "
            f"{embedding.name}; set tie_word_embeddings to false in its config.json."
        )


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


def _read(file: Path, name: str) -> Tensor:
    with _opened(file) as opened:
        tensor: Tensor = opened.get_tensor(name)
        return tensor


def _opened(file: Path) -> Any:
    try:
        check_pulled(file)
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
