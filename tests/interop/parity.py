"""Differences of logits between our models and Hugging Face's.

``python tests/interop/parity.py`` prints them as a table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from lm_experiments.interop import FAMILIES, from_hf, load_hf, to_hf
from lm_experiments.model import ModelConfig, Transformer, build_model, choose
from lm_experiments.registry import options_of

M = TypeVar("M", bound=nn.Module)

VOCABULARY, CONTEXT = 97, 32
HEADING = "| architecture | HF to ours | padded | ours to HF | padded |"
TOLERANCE = 1e-4
"""The largest accepted difference of two float32 logits."""

# Sizes that all differ, so that a wrong reshape raises an error.
_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
}
_PLAIN: Mapping[str, Any] = {
    **_SIZES,
    "intermediate_size": 40,
    "max_position_embeddings": CONTEXT,
}
_GROUPED: Mapping[str, Any] = {**_PLAIN, "num_key_value_heads": 2}
_LONGER = {"factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 500.0}
_LLAMA3 = {**_LONGER, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {**_LONGER, "rope_type": "yarn", "beta_fast": 16.0, "beta_slow": 2.0}
_LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}

VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "gpt2": {
        "tied": {**_SIZES, "n_positions": CONTEXT},
        "untied, ReLU, unscaled scores": {
            **_SIZES,
            "n_positions": CONTEXT,
            "n_inner": 40,
            "activation_function": "relu",
            "tie_word_embeddings": False,
            "scale_attn_weights": False,
        },
    },
    "gpt_neox": {
        "parallel, a quarter rotated": _PLAIN,
        "one after the other, tied, no biases in attention, linear RoPE": {
            **_PLAIN,
            "use_parallel_residual": False,
            "attention_bias": False,
            "tie_word_embeddings": True,
            "hidden_act": "gelu_new",
            "rope_parameters": {**_LINEAR, "partial_rotary_factor": 1.0},
        },
    },
    "llama": {
        "all heads": _PLAIN,
        "grouped, tied, wide heads, biases, Llama 3 RoPE": {
            **_GROUPED,
            "tie_word_embeddings": True,
            "head_dim": 10,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": _LLAMA3,
        },
    },
    "olmo2": {
        "all heads": _PLAIN,
        "grouped, tied, biases, YaRN": {
            **_GROUPED,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "rope_parameters": _YARN,
        },
    },
    "qwen3": {
        "grouped": {**_GROUPED, "head_dim": 10},
        "one head of keys, tied, biases, windows in later layers": {
            **_PLAIN,
            "head_dim": 10,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
    },
    "gemma2": {
        "grouped, tied, windows in every second layer": {
            **_GROUPED,
            "head_dim": 10,
            "sliding_window": 5,
            "query_pre_attn_scalar": 7,
            # Low enough to affect the small scores and logits of this model.
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        "untied, biases, no caps": {
            **_PLAIN,
            "num_key_value_heads": 6,
            "head_dim": 8,
            "query_pre_attn_scalar": 8,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
            "layer_types": ["full_attention"] * 4,
            "sliding_window": CONTEXT,
        },
    },
    "bloom": {"tied": _SIZES, "untied": {**_SIZES, "tie_word_embeddings": False}},
}
"""For each family, configurations that together cover every converted option."""


@dataclass(frozen=True)
class LogitDifference:
    """The largest difference of two logits, on full sequences and on padded ones."""

    plain: float
    padded: float


def their_model(kind: str, fields: Mapping[str, Any]) -> nn.Module:
    """Return a small Hugging Face model with random parameters."""
    config = AutoConfig.for_model(kind, **fields, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    model: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return _shaken(model)


def our_model(config: ModelConfig) -> Transformer:
    """Return a model of ours with random parameters and interleaved RoPE pairs."""
    if config.position.name == "rope":
        options = {**vars(options_of("position", config.position)), "pairing": "interleaved"}
        config = dataclasses.replace(config, position=choose("position", "rope", options))
    return _shaken(build_model(config, seed=0))


def as_theirs(model: Transformer) -> nn.Module:
    """Convert our model to a Hugging Face model."""
    config, state = to_hf(model.config, model.state_dict())
    theirs: nn.Module = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    theirs.load_state_dict(state)
    return theirs.eval()


def difference(theirs: nn.Module, ours: Transformer) -> LogitDifference:
    """Compare the logits of a batch, without padding, then padded on the left and on the right."""
    tokens = torch.randint(3, VOCABULARY, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(tokens)
    mask[0, :7] = 0
    mask[1, -5:] = 0
    kind = getattr(theirs.config, "model_type", "")
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    # BLOOM computes positions from the attention mask itself.
    counted = {} if kind == "bloom" else {"position_ids": positions}
    with torch.no_grad():
        plain = theirs(tokens).logits - ours(tokens)
        padded = theirs(tokens, attention_mask=mask, **counted).logits
        padded = padded - ours(tokens, documents=mask)
    return LogitDifference(_largest(plain), _largest(padded[mask.bool()]))


@cache
def measure(kind: str, variant: str) -> tuple[LogitDifference, LogitDifference]:
    """Return the differences from Hugging Face to ours, and from ours to Hugging Face."""
    torch.manual_seed(0)
    theirs = their_model(kind, VARIANTS[kind][variant])
    ours = our_model(from_hf(theirs)[0])
    return difference(theirs, load_hf(theirs)), difference(as_theirs(ours), ours)


def table() -> Iterator[str]:
    """Yield the lines of a Markdown table: the largest difference by family and direction."""
    yield HEADING
    yield "|---|---|---|---|---|"
    for kind in FAMILIES:
        pairs = [measure(kind, variant) for variant in VARIANTS[kind]]
        cells = [
            max(getattr(pair[direction], batch) for pair in pairs)
            for direction in (0, 1)
            for batch in ("plain", "padded")
        ]
        yield f"| {kind} | " + " | ".join(f"{cell:.1e}" for cell in cells) + " |"


def _shaken(model: M) -> M:
    """Add noise to every parameter, so that no gain is 1 and no bias 0."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


def _largest(differences: Tensor) -> float:
    return differences.abs().max().item()


if __name__ == "__main__":
    logging.set_verbosity_error()
    for line in table():
        print(line)
