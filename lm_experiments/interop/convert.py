"""Conversion of models from and to `transformers`: configuration and tensors, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from lm_experiments.interop.configs import read_config, write_config
from lm_experiments.interop.layouts import halves_from_pairs
from lm_experiments.interop.modules import HEAD, MODULES, ModuleMap
from lm_experiments.interop.options import option
from lm_experiments.interop.support import fitting_family
from lm_experiments.interop.weights import (
    check_tensors,
    check_tied,
    open_config,
    parameters,
    stored_tensors,
)
from lm_experiments.model import ModelConfig, Transformer, sketch_model
from lm_experiments.model.positions.rope import rotated_columns


def from_hf(source: str | Path | nn.Module) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return our configuration, without dropout, and state dict for a Hugging Face model.

    ``source`` is a folder with ``config.json`` and safetensors, or a loaded model. Tensors are
    copied one at a time and keep their dtype.

    Raises:
        InputError: for a class or an option that is not supported, and if the tensors do not match
            the configuration.
    """
    if not isinstance(source, nn.Module):
        source = Path(source)
    hf_config: Any = source.config if isinstance(source, nn.Module) else open_config(source)
    ours = read_config(hf_config)
    return ours, _read(hf_config.model_type, ours, source)


def load_hf(source: str | Path | nn.Module) -> Transformer:
    """Load a Hugging Face model as ours, in evaluation mode; see `from_hf`.

    There is never a second copy of all tensors in memory.
    """
    config, state = from_hf(source)
    model = sketch_model(config).to_empty(device="cpu")
    model.load_state_dict(state, assign=True)
    if config.tie_embeddings:
        model.head.weight = model.embedding.weight
    return model.eval()


def to_hf(config: ModelConfig, state: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
    """Return the Hugging Face configuration and state dict for a model of ours.

    Interleaved RoPE pairs are reordered to halves. A bias or a gain that only the Hugging Face
    class has is written as zeros or ones.

    Raises:
        InputError: if no Hugging Face class fits, with the unsupported choices.
    """
    kind = fitting_family(config)
    hf_config = write_config(kind, config)
    state = _halved(config, state)
    dtype = state["embedding.weight"].dtype
    mapped = {
        tensor.hf: tensor.layout.pack([state[name] for name in tensor.ours], config.n_heads)
        for tensor in tensor_maps(kind, config)
    }
    expected = expected_tensors(hf_config)
    for name in expected.keys() - mapped.keys():
        fill = torch.zeros if name.endswith(".bias") else torch.ones
        mapped[name] = fill(expected[name], dtype=dtype)
    if config.tie_embeddings:
        mapped[f"{HEAD.hf}.weight"] = mapped[_embedding_of(kind)]
    check_tensors(f"The {kind} written", expected, {k: tuple(v.shape) for k, v in mapped.items()})
    hf_config.dtype = dtype
    return hf_config, mapped


def tensor_maps(kind: str, config: ModelConfig) -> list[ModuleMap]:
    """Return the mapping of all tensors, without a tied head."""
    names = sketch_model(config).state_dict()
    found = []
    for module in MODULES[kind].maps(config.n_layers):
        if module is HEAD and config.tie_embeddings:
            continue
        for tensor in ("weight", "bias"):
            ours = tuple(f"{name}.{tensor}" for name in module.ours)
            if ours[0] in names:
                found.append(ModuleMap(f"{module.hf}.{tensor}", ours, module.layout))
    return found


def expected_tensors(hf_config: Any) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the tensors of a Hugging Face model, without allocating it."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(hf_config)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def _read(kind: str, config: ModelConfig, source: Path | nn.Module) -> dict[str, Tensor]:
    """Check names and shapes of all tensors, then read them one by one."""
    maps = tensor_maps(kind, config)
    shapes = sketch_model(config).state_dict()
    expected = {
        tensor.hf: tensor.layout.pack([shapes[name] for name in tensor.ours], config.n_heads).shape
        for tensor in maps
    }
    where = type(source).__name__ if isinstance(source, nn.Module) else str(source)
    stored = parameters(stored_tensors(source), MODULES[kind].prefix)
    head = stored.pop(f"{HEAD.hf}.weight", None) if config.tie_embeddings else None
    check_tensors(where, expected, {name: tensor.shape for name, tensor in stored.items()})
    if head is not None:
        check_tied(where, head, stored[_embedding_of(kind)])
    state: dict[str, Tensor] = {}
    # The largest first, so that its temporary second copy does not add to the memory peak.
    for tensor in sorted(maps, key=lambda tensor: -expected[tensor.hf].numel()):
        parts = tensor.layout.unpack(stored[tensor.hf].read(), config.n_heads)
        state |= {
            name: part.detach().clone(memory_format=torch.contiguous_format)
            for name, part in zip(tensor.ours, parts, strict=True)
        }
    if config.tie_embeddings:
        state["head.weight"] = state["embedding.weight"]
    return {name: state[name] for name in shapes}


def _halved(config: ModelConfig, state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the state dict with RoPE pairs reordered to halves."""
    if config.position.name != "rope" or option(config, "position.pairing") == "half":
        return state
    width = config.width_of_head
    rotated = rotated_columns(option(config, "position.fraction"), width)
    modules = ("query", "key", "query_norm", "key_norm")
    return {
        name: halves_from_pairs(tensor, width, rotated)
        if name.split(".")[-2] in modules and ".attention." in name
        else tensor
        for name, tensor in state.items()
    }


def _embedding_of(kind: str) -> str:
    modules = MODULES[kind]
    [embedding] = [module for module in modules.outer if module.ours == ("embedding",)]
    return f"{modules.prefix}.{embedding.hf}.weight"
