"""Conversion of tokenizers: the same ids and the same text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import tokenizers as backends
from transformers import AutoConfig, AutoTokenizer

from lm_experiments.data.tokenizers import BPETokenizer, Tokenizer, train_tokenizer
from lm_experiments.data.tokenizers.pretrained import FileTokenizer
from lm_experiments.errors import InputError
from lm_experiments.interop import FAMILIES, to_fast
from lm_experiments.interop.tokenizers import from_folder
from lm_experiments.registry import choose

TEXT = "the cat sat on the mat;\n\n  the dog  sat <unk> é ünï \ufffd log. don't 12 " * 40
TEXTS = (
    TEXT,
    "",
    "<|endoftext|>hello<|endoftext|>",
    " a  b\n\t中文🙂",
    "x" * 100,
    "the <unk> cat\r\n\x00 \u2581",
)
CONFIGS = {
    "bpe": choose("tokenizer", "bpe", {"vocab_size": 280}),
    "bytes": choose("tokenizer", "bytes"),
    "chars": choose("tokenizer", "chars"),
}


@pytest.fixture(params=CONFIGS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer([TEXT], CONFIGS[request.param])


def reload(tokenizer: Tokenizer, folder: Path, kind: str = "llama") -> Any:
    to_fast(tokenizer).save_pretrained(folder)
    AutoConfig.for_model(kind).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_ids_and_text_are_ours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    theirs = reload(tokenizer, tmp_path)
    assert len(theirs) == tokenizer.vocab_size
    assert theirs.eos_token_id == theirs.bos_token_id == tokenizer.end_of_text_id
    for text in TEXTS:
        ids = tokenizer.encode(text).tolist()
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids) == tokenizer.decode(ids)
    ended = [*ids, tokenizer.end_of_text_id, *ids]
    assert theirs.decode(ended) == tokenizer.decode(ended)
    assert theirs.decode(ended, skip_special_tokens=True) == tokenizer.decode([*ids, *ids])


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_family_puts_its_own_rules_in_place_of_ours(kind: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer([TEXT], CONFIGS["bytes"])
    theirs = reload(tokenizer, tmp_path, kind)
    assert theirs(TEXT)["input_ids"] == list(TEXT.encode())


def test_a_hugging_face_folder_encodes_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    reload(tokenizer, tmp_path)
    back = from_folder(tmp_path)
    assert back.vocab_size == tokenizer.vocab_size
    assert back.end_of_text_id == tokenizer.end_of_text_id
    for text in TEXTS:
        assert back.encode(text).tolist() == tokenizer.encode(text).tolist()
    ids = [*tokenizer.encode("the cat").tolist(), tokenizer.end_of_text_id]
    assert back.decode(ids) == tokenizer.decode(ids)
    assert back.unknown_id == tokenizer.unknown_id


def test_a_loaded_tokenizer_adds_no_special_tokens(tmp_path: Path) -> None:
    """A tokenizer that puts a start before each text, as Llama's does."""
    to_fast(train_tokenizer([TEXT], CONFIGS["bytes"])).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    values = json.loads(file.read_text())
    values["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]}
        },
    }
    file.write_text(json.dumps(values))
    settings = tmp_path / "tokenizer_config.json"
    settings.write_text(
        json.dumps({**json.loads(settings.read_text()), "split_special_tokens": False})
    )
    AutoConfig.for_model("llama").save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("a<|endoftext|>")["input_ids"] == [256, 97, 256]
    assert from_folder(tmp_path).encode("a<|endoftext|>").tolist() == list(b"a<|endoftext|>")


def test_a_folder_without_a_tokenizer_or_without_an_end(tmp_path: Path) -> None:
    AutoConfig.for_model("llama").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"needs a tokenizer\.json"):
        from_folder(tmp_path)
    to_fast(train_tokenizer([TEXT], CONFIGS["bytes"])).save_pretrained(tmp_path)
    settings = tmp_path / "tokenizer_config.json"
    values = json.loads(settings.read_text())
    settings.write_text(json.dumps({**values, "eos_token": None}))
    with pytest.raises(InputError, match="no eos_token"):
        from_folder(tmp_path)


def test_a_tokenizer_that_is_not_known_is_refused() -> None:
    class Morse(BPETokenizer):
        name = "morse"

    with pytest.raises(InputError, match=r"tokenizer=morse .* bpe, bytes, chars"):
        to_fast(Morse(backends.Tokenizer(backends.models.BPE())))


def test_a_tokenizer_from_a_file_has_its_end_wherever_the_file_has_it() -> None:
    backend = backends.Tokenizer(backends.models.BPE({"<end>": 0, "a": 1, "b": 2}, []))
    backend.add_special_tokens(["<end>"])

    theirs = to_fast(FileTokenizer(backend, "<end>"))
    assert theirs.eos_token_id == 0
    assert theirs("ab")["input_ids"] == [1, 2]


def test_gpt2_s_own_files(tmp_path: Path) -> None:
    characters = backends.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {"<|endoftext|>": 0, **{c: i + 1 for i, c in enumerate(sorted(characters))}}
    vocabulary["th"] = len(vocabulary)
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\n")
    ours = train_tokenizer([], choose("tokenizer", "gpt2", {"path": str(tmp_path)}))
    theirs = to_fast(ours)
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text).tolist()
    assert theirs.eos_token_id == ours.end_of_text_id == 0


def test_an_end_of_text_that_is_ordinary_text_too_is_refused() -> None:
    def vocabulary(words: Iterable[str]) -> dict[str, int]:
        return {word: place for place, word in enumerate(words)}

    backend = backends.Tokenizer(backends.models.BPE(vocabulary(["<|endoftext|>", "a"]), []))
    with pytest.raises(InputError, match="as ordinary text"):
        to_fast(BPETokenizer(backend))
