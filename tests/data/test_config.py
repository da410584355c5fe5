"""The options of text and tokenizer: what is refused, and what the message says."""

from __future__ import annotations

from typing import Any

import pytest

from lm_experiments.data import DataConfig, check_pair
from lm_experiments.errors import InputError
from lm_experiments.registry import choose
from lm_experiments.training.config import build_choice


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "kjw"}, "data.name='kjw' is unknown; type one of addition, copy, fineweb_edu,"),
        ({"split": "head"}, "data.split='head' is unknown; type one of auto, document, tail"),
        ({"val_fraction": 0.0}, "data.val_fraction=0.0 must lie between 0 and 1"),
        ({"val_fraction": float("nan")}, "data.val_fraction=nan"),
        ({"test_fraction": -0.1}, "data.test_fraction=-0.1 must be 0 or more, and leave training"),
        ({"test_fraction": 0.9}, "leave training text beside data.val_fraction=0.1"),
        ({"test_fraction": float("nan")}, "type for example data.test_fraction=0.05"),
        (
            {"name": "tokens", "path": "a", "test_fraction": 0.1},
            "data.test_fraction=0.1 cannot be cut from data=tokens, whose documents are not known; "
            "type data.test_fraction=0",
        ),
        ({"name": "text"}, "data=text has no data.path"),
        ({"path": "a.txt"}, "data.path='a.txt' is not read by data=kjv"),
        ({"separator": "\n"}, "type data=text"),
        ({"name": "text", "path": "a", "separator": ""}, "type data.separator=null"),
        (
            {"dataset": "a/b"},
            "data.dataset='a/b' is not read by data=kjv; type data=hf",
        ),
        ({"name": "tokens"}, "data=tokens has no data.path; type data.path= and a folder"),
        (
            {"name": "tokens", "path": "a", "separator": "|"},
            "data.separator='|' is not read by data=tokens",
        ),
        (
            {"name": "tokens", "path": "a", "val_fraction": 0.2},
            "data.val_fraction=0.2 is not read, since the corpus has validation text of its own; "
            "type data.val_fraction=0.1",
        ),
        ({"name": "hf"}, "data=hf has no data.dataset; type data.dataset="),
        (
            {"name": "hf", "path": "a", "revision": "v1"},
            "data.revision='v1' is not read from a folder",
        ),
        (
            {"name": "hf", "path": "a", "val_split": "val", "split_seed": 3},
            "type data.split_seed=0, or data.val_split=null to draw it",
        ),
        ({"name": "hf", "path": "a", "split": "tail"}, "type data.split=document"),
        ({"name": "hf", "path": "a", "max_documents": 0}, "type data.max_documents=null"),
        ({"name": "hf", "path": "a", "val_files": "v"}, "do not go together"),
        (
            {"name": "hf", "path": "a", "train_files": "t", "val_split": "validation"},
            "data.train_files='t', data.val_files=None and data.val_split='validation' do not go",
        ),
    ],
)
def test_bad_data_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="data") as caught:
        DataConfig(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "word"}, "tokenizer=word is not a component; tokenizer can be bytes, chars, bpe"),
        ({"name": "file"}, "tokenizer.path is not set"),
        ({"name": "gpt2", "path": "a", "vocab_size": 9}, "tokenizer.vocab_size is not a key"),
        (
            {"name": "bytes", "path": "a"},
            "tokenizer.path is not a key; the keys of tokenizer are",
        ),
        ({"name": "none"}, "tokenizer.vocab_size is not set"),
        ({"name": "none", "vocab_size": 1}, "tokenizer.vocab_size=1 must be at least 2"),
        ({"name": "bpe", "vocab_size": 256}, "type tokenizer.vocab_size=257 or more"),
        ({"name": "bpe", "sample_bytes": 0}, "tokenizer.sample_bytes=0"),
    ],
)
def test_bad_tokenizer_options_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build_choice("tokenizer", values)
    assert message in str(caught.value)


def test_a_streamed_corpus_has_no_drawn_sample() -> None:
    data = DataConfig(name="hf", path="a")
    with pytest.raises(ValueError, match=r"sample_seed=3 draws nothing from data=hf"):
        check_pair(data, choose("tokenizer", "bpe", {"vocab_size": 300, "sample_seed": 3}))
    check_pair(DataConfig(), choose("tokenizer", "bpe", {"vocab_size": 300, "sample_seed": 3}))
