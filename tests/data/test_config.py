"""The options of text and tokenizer: what is refused, and what the message says."""

from __future__ import annotations

from typing import Any

import pytest

from lm_experiments.data import DataConfig, TokenizerConfig
from lm_experiments.data.config import CHOOSES_VOCABULARY
from lm_experiments.data.tokenizers import TOKENIZERS


def test_every_name_has_its_code() -> None:
    assert set(CHOOSES_VOCABULARY) == set(TOKENIZERS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "kjw"}, "data.name='kjw' is unknown; type one of kjv, text"),
        ({"split": "head"}, "data.split='head' is unknown; type one of auto, document, tail"),
        ({"val_fraction": 0.0}, "data.val_fraction=0.0 must lie between 0 and 1"),
        ({"val_fraction": float("nan")}, "data.val_fraction=nan"),
        ({"name": "text"}, "data.name=text has no data.path"),
        ({"path": "a.txt"}, "data.path='a.txt' is not read by data.name=kjv"),
        ({"separator": "\n"}, "type data.name=text"),
        ({"name": "text", "path": "a", "separator": ""}, "type data.separator=null"),
    ],
)
def test_bad_data_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="data") as caught:
        DataConfig(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "word"}, "type one of bpe, bytes, chars"),
        ({"name": "bpe"}, "tokenizer.vocab_size=None is too small"),
        ({"name": "bpe", "vocab_size": 256}, "type tokenizer.vocab_size=257 or more"),
        ({"name": "bytes", "vocab_size": 257}, "type tokenizer.vocab_size=null"),
        ({"name": "chars", "sample_bytes": 0}, "tokenizer.sample_bytes=0"),
    ],
)
def test_bad_tokenizer_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="tokenizer") as caught:
        TokenizerConfig(**options)
    assert message in str(caught.value)
