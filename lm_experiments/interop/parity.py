"""How far logits of theirs and ours are apart, family by family: python -m ...interop.parity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from lm_experiments.model import Transformer, sketch_model

from .convert import FAMILIES, from_hf, load_hf, to_hf

VOCABULARY, CONTEXT = 97, 32
TOLERANCE = 1e-4
# Small, and odd where a wrong reshape would go unnoticed otherwise: three heads, widths that differ.
_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
}
_GATED: Mapping[str, Any] = {
    **_SIZES,
    "intermediate_size": 56,
    "max_position_embeddings": CONTEXT,
    "num_key_value_heads": 2,
    "attention_bias": True,
}
_LONGER = {"factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 500.0}
_LLAMA3 = {**_LONGER, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {**_LONGER, "rope_type": "yarn"}

# For each family, configurations of theirs that between them use all that is taken over.
VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "gpt2": {
        "as released": {**_SIZES, "n_positions": CONTEXT},
        "untied, relu, narrow": {
            **_SIZES,
            "n_positions": CONTEXT,
            "n_inner": 40,
            "activation_function": "relu",
            "tie_word_embeddings": False,
            "scale_attn_weights": False,
        },
    },
}
