"""Write a trained model and its tokenizer as a folder for `from_pretrained`, and read one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.interop.configs import read_config
from lm_experiments.interop.convert import to_hf
from lm_experiments.interop.ropes import before_version_5
from lm_experiments.interop.tokenizers import from_folder, to_fast
from lm_experiments.interop.weights import open_config
from lm_experiments.model import ModelConfig, Transformer


def write_folder(out: Path, model: Transformer, tokenizer: Tokenizer) -> str:
    """Write ``config.json``, ``model.safetensors`` and the tokenizer, atomically.

    Both spellings are written where version 5 of transformers has changed one.

    Returns:
        The name of the Hugging Face class.

    Raises:
        InputError: if ``out`` is not empty, or if model or tokenizer cannot be exported.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already; name a new folder.")
    fast = to_fast(tokenizer)
    fast.model_max_length = model.config.context_length
    config, state = to_hf(model.config, model.state_dict())
    config.bos_token_id = config.eos_token_id = tokenizer.end_of_text_id
    with torch.device("meta"):
        hf_model = AutoModelForCausalLM.from_config(config)
    hf_model.load_state_dict(state, assign=True)
    hf_model.tie_weights()
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        hf_model.save_pretrained(unfinished)
        fast.save_pretrained(unfinished)
        rope = getattr(config, "rope_parameters", None)
        _add(unfinished / "config.json", before_version_5(rope) if rope else {})
        # Version 5 renamed this class, and reads both names.
        _add(unfinished / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
        unfinished.replace(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return type(hf_model).__name__


def _add(path: Path, values: Mapping[str, Any]) -> None:
    """Add values to a JSON file."""
    known = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**known, **values}, indent=2) + "\n", encoding="utf-8")


def read_folder(folder: Path) -> tuple[ModelConfig, Tokenizer]:
    """Return configuration and tokenizer of a Hugging Face folder; `load_hf` loads the model.

    Raises:
        InputError: if one of them is not supported, or they do not fit each other.
    """
    config = read_config(open_config(folder))
    tokenizer = from_folder(folder)
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"The tokenizer of {folder} has {tokenizer.vocab_size} tokens, and its model "
            f"{config.vocab_size}; they do not belong together."
        )
    return config, tokenizer
