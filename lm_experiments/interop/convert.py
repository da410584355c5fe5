"""Models of `transformers` as ours, and ours as theirs: configuration and tensors, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from lm_experiments.errors import InputError
from lm_experiments.interop import configs
from lm_experiments.interop.layouts import LAYOUTS, Layout, halves_from_pairs
from lm_experiments.interop.modules import HEAD, MODULES, Modules
from lm_experiments.interop.options import option
from lm_experiments.interop.support import fitting_family
from lm_experiments.interop.weights import Folder, LoadedModel, Source, check_tensors
from lm_experiments.model import ModelConfig, Transformer, sketch_model
from lm_experiments.model.positions.rope import rotated_columns


@dataclass(frozen=True)
class Family:
    """One of their architectures.

    Attributes:
        modules: which module of theirs is which of ours.
        read: their configuration to the fields of ours.
        write: our configuration to the fields of theirs.
    """

    modules: Modules
    read: Callable[[Any], dict[str, Any]]
    write: Callable[[ModelConfig], dict[str, Any]]


_CONFIGS = {
    "gpt2": (configs.read_gpt2, configs.write_gpt2),
    "gpt_neox": (configs.read_gpt_neox, configs.write_gpt_neox),
    "llama": (configs.read_llama, configs.write_llama),
    "olmo2": (configs.read_olmo2, configs.write_olmo2),
    "qwen3": (configs.read_qwen3, configs.write_qwen3),
    "gemma2": (configs.read_gemma2, configs.write_gemma2),
    "bloom": (configs.read_bloom, configs.write_bloom),
}
FAMILIES = {name: Family(MODULES[name], *pair) for name, pair in _CONFIGS.items()}
"""Every family by its ``model_type``."""

KINDS = ("weight", "bias")


@dataclass(frozen=True)
class Rule:
    """One tensor of theirs, and those of ours that it holds, in order."""

    theirs: str
    ours: tuple[str, ...]
    layout: Layout


def from_hf(source: str | Path | nn.Module) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return our configuration and state for a model of theirs.

    Dropout is not taken over: it acts in training alone. Tensors are copies, in their own type,
    made one at a time.

    Args:
        source: a folder with ``config.json`` and safetensors, or a loaded model.

    Raises:
        InputError: for a class or an option without a counterpart, and where the tensors are
            not those of the configuration; they are listed.
    """
    opened: Source = LoadedModel(source) if isinstance(source, nn.Module) else Folder(Path(source))
    ours = config_from_hf(opened.config)
    return ours, _read(opened.config.model_type, ours, opened)


def config_from_hf(theirs: Any) -> ModelConfig:
    """Return our configuration for one of theirs.

    Raises:
        InputError: for a class or an option without a counterpart.
    """
    kind = theirs.model_type
    if kind not in FAMILIES:
        raise InputError(
            f"A model of type {kind!r} cannot be loaded; the types that can are "
            f"{', '.join(FAMILIES)}."
        )
    return ModelConfig(**FAMILIES[kind].read(theirs))


def load_hf(source: str | Path | nn.Module) -> Transformer:
    """Return a model of theirs as ours, in evaluation mode; see `from_hf`.

    The model's memory is its tensors': at no time is there a second copy of all of them.
    """
    config, state = from_hf(source)
    model = sketch_model(config).to_empty(device="cpu")
    model.load_state_dict(state, assign=True)
    if config.tie_embeddings:
        model.head.weight = model.embedding.weight
    return model.eval()


def to_hf(config: ModelConfig, state: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    """Return their configuration and state for a model of ours.

    RoPE's interleaved pairs become halves, by reordering rows. Where their class has a bias or a
    gain that ours lacks, it is written as zeros or ones.

    Args:
        config: of a model that one of `FAMILIES` can express.
        state: its ``state_dict()``.

    Raises:
        InputError: where no class of theirs expresses it, naming the choices.
    """
    kind = fitting_family(config)
    theirs = AutoConfig.for_model(kind, **FAMILIES[kind].write(config), **_NO_SPECIAL_TOKENS)
    state = _halved(config, state)
    dtype = state["embedding.weight"].dtype
    mapped = {
        rule.theirs: rule.layout.pack([state[name] for name in rule.ours], config.n_heads)
        for rule in rules(kind, config)
    }
    expected = expected_tensors(theirs)
    for name in expected.keys() - mapped.keys():
        mapped[name] = _neutral(name, expected[name]).to(dtype)
    if config.tie_embeddings:
        mapped[f"{HEAD.theirs}.weight"] = mapped[_embedding_of(kind)]
    check_tensors(f"The {kind} written", expected, {k: tuple(v.shape) for k, v in mapped.items()})
    theirs.dtype = dtype
    return theirs, mapped


_NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def rules(kind: str, config: ModelConfig) -> list[Rule]:
    """Return which tensor of theirs holds which of ours; a tied head is the embedding's."""
    there = sketch_model(config).state_dict()
    found = []
    for place in FAMILIES[kind].modules.places(config.n_layers):
        if place is HEAD and config.tie_embeddings:
            continue
        for tensor in KINDS:
            ours = tuple(f"{module}.{tensor}" for module in place.ours)
            if ours[0] in there:
                found.append(Rule(f"{place.theirs}.{tensor}", ours, LAYOUTS[place.layout]))
    return found


def expected_tensors(theirs: Any) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the tensors of their model; nothing is allocated."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(theirs)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _read(kind: str, config: ModelConfig, source: Source) -> dict[str, Tensor]:
    """Read, tensor by tensor, what a source holds, having checked names and shapes of all."""
    found = rules(kind, config)
    shapes = sketch_model(config).state_dict()
    expected = {
        rule.theirs: tuple(
            rule.layout.pack([shapes[name] for name in rule.ours], config.n_heads).shape
        )
        for rule in found
    }
    source.select(FAMILIES[kind].modules.prefix, tied=config.tie_embeddings)
    check_tensors(source.name, expected, source.shapes)
    if config.tie_embeddings and isinstance(source, Folder):
        source.check_tied(_embedding_of(kind))
    state: dict[str, Tensor] = {}
    # The largest first: two copies of one tensor are then never on top of all others.
    for rule in sorted(found, key=lambda rule: -_elements(expected[rule.theirs])):
        parts = rule.layout.unpack(source.read(rule.theirs), config.n_heads)
        state |= {
            name: part.detach().clone(memory_format=torch.contiguous_format)
            for name, part in zip(rule.ours, parts, strict=True)
        }
    if config.tie_embeddings:
        state["head.weight"] = state["embedding.weight"]
    return {name: state[name] for name in shapes}


def _elements(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()


def _halved(config: ModelConfig, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the state of the same model with RoPE's pairs as halves."""
    if config.position.name != "rope" or option(config, "position.pairing") == "half":
        return state
    width = config.width_of_head
    turned = rotated_columns(option(config, "position.fraction"), width)
    modules = ("query", "key", "query_norm", "key_norm")
    return {
        name: halves_from_pairs(tensor, width, turned)
        if name.split(".")[-2] in modules and ".attention." in name
        else tensor
        for name, tensor in state.items()
    }


def _neutral(name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the values of a tensor that ours lacks: biases of 0, gains of 1."""
    return torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)


def _embedding_of(kind: str) -> str:
    modules = FAMILIES[kind].modules
    [place] = [place for place in modules.outer if place.ours == ("embedding",)]
    return f"{modules.prefix}.{place.theirs}.weight"
