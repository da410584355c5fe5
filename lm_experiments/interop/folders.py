"""A trained model as a folder that `transformers` loads, tokenizer included."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from lm_experiments.data import Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.interop.convert import config_from_hf, to_hf
from lm_experiments.interop.tokenizers import from_folder, to_fast
from lm_experiments.interop.weights import Folder
from lm_experiments.model import ModelConfig, Transformer

UNFINISHED = ".unfinished"


def write_folder(out: Path, model: Transformer, tokenizer: Tokenizer) -> str:
    """Write ``config.json``, ``model.safetensors`` and the tokenizer; return their class's name.

    The folder is whole or absent.

    Args:
        out: a folder that does not exist yet, or is empty.
        model: ours.
        tokenizer: what it was trained with.

    Raises:
        InputError: where the folder is taken, no class of theirs expresses the model, or no
            tokenizer of theirs ours.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists already; name a new folder.")
    fast = to_fast(tokenizer)
    fast.model_max_length = model.config.context_length
    theirs = _their_model(model, tokenizer.end_of_text_id)
    unfinished = out.with_name(f".{out.name}{UNFINISHED}")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        theirs.save_pretrained(unfinished)
        fast.save_pretrained(unfinished)
        unfinished.replace(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return type(theirs).__name__


def read_folder(folder: Path) -> tuple[ModelConfig, Tokenizer]:
    """Return the configuration and the tokenizer of a folder of theirs; `load_hf` has the model.

    Raises:
        InputError: where one of them cannot be taken over, or they do not belong together.
    """
    config = config_from_hf(Folder(folder).config)
    tokenizer = from_folder(folder)
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"The tokenizer of {folder} has {tokenizer.vocab_size} tokens, and its model "
            f"{config.vocab_size}; they do not belong together."
        )
    return config, tokenizer


def _their_model(model: Transformer, end_of_text: int) -> Any:
    config, state = to_hf(model.config, model.state_dict())
    config.bos_token_id = config.eos_token_id = end_of_text
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(config)
    theirs.load_state_dict(state, assign=True)
    theirs.tie_weights()
    return theirs
