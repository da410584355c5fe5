"""Conversion of tokenizers from and to `transformers`, with the same ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tokenizers as backends
from tokenizers import decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from lm_experiments.data import Tokenizer
from lm_experiments.data.tokenizers.base import END_OF_TEXT, UNKNOWN
from lm_experiments.data.tokenizers.pretrained import FileTokenizer
from lm_experiments.errors import InputError

# Longer than a character, so that it is not in the vocabulary of any `chars` tokenizer.
UNKNOWN_NAME = "<unk>"
# Tokenizers read from files define their own end-of-text token.
FROM_FILES = ("file", "gpt2")


def to_fast(tokenizer: Tokenizer) -> Any:
    """Return a `PreTrainedTokenizerFast` that gives the same ids and the same text.

    The end of text is its ``eos_token``. No text encodes to it, not even its own name.

    Raises:
        InputError: for a tokenizer that cannot be exported.
    """
    if tokenizer.name not in _BACKENDS:
        raise InputError(
            f"tokenizer={tokenizer.name} cannot be exported; those that can are "
            f"{', '.join(_BACKENDS)}."
        )
    state = tokenizer.state()
    end = state["end_of_text"] if tokenizer.name in FROM_FILES else END_OF_TEXT
    fast = PreTrainedTokenizerFast(
        tokenizer_object=_BACKENDS[tokenizer.name](state),
        # As in GPT-2, a document follows the end of another.
        bos_token=end,
        eos_token=end,
        # Otherwise the name of the end of text would encode to it.
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )
    if fast.eos_token_id != tokenizer.end_of_text_id:
        raise InputError(
            f"The vocabulary of tokenizer={tokenizer.name} holds {end} as ordinary text, so that "
            "transformers would confuse it with the end of a text."
        )
    return fast


def from_folder(folder: Path) -> Tokenizer:
    """Return the tokenizer of a Hugging Face folder; documents end with its ``eos_token``.

    Nothing is added to a text, and no text encodes to a special token.

    Raises:
        InputError: if there is none, or it has no ``eos_token``.
    """
    try:
        hf_tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        backend = hf_tokenizer.backend_tokenizer
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"{folder} has no tokenizer that can be loaded; it needs a tokenizer.json."
        ) from error
    if hf_tokenizer.eos_token is None:
        raise InputError(
            f"The tokenizer of {folder} has no eos_token to end documents with; set it in its "
            "tokenizer_config.json."
        )
    return FileTokenizer(backend, hf_tokenizer.eos_token)


def _bytes(state: Any) -> backends.Tokenizer:
    """Return a byte-level BPE without merges, in which each byte is its own id."""
    vocabulary = {character: byte for byte, character in sorted(bytes_to_unicode().items())}
    backend = backends.Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _chars(state: Any) -> backends.Tokenizer:
    """Return a word-level tokenizer whose words are single characters."""
    names = [*state, UNKNOWN_NAME]
    vocabulary = {name: token for token, name in enumerate(names)}
    backend = backends.Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN_NAME))
    backend.pre_tokenizer = pre_tokenizers.Split(backends.Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Sequence([decoders.Replace(UNKNOWN_NAME, UNKNOWN), decoders.Fuse()])
    return backend


_BACKENDS: Mapping[str, Callable[[Any], backends.Tokenizer]] = {
    "bpe": lambda state: backends.Tokenizer.from_str(json.dumps(state)),
    "bytes": _bytes,
    "chars": _chars,
    **dict.fromkeys(
        FROM_FILES, lambda state: backends.Tokenizer.from_str(json.dumps(state["backend"]))
    ),
}
