"""Tokenizers from files of others: the same ids as theirs, wherever their end of text lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers as hf
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from lm_experiments.data import (
    DataConfig,
    files_hash,
    load_tokenizer,
    prepare,
    train_tokenizer,
)
from lm_experiments.data.tokenizers.base import END_OF_TEXT, Tokenizer
from lm_experiments.errors import InputError
from lm_experiments.registry import choose

TEXT = "The dog can't run 12 miles.  It naïvely sleeps\n\n\tand runs " * 5
SPACES = "    "


def trained(special: list[str], size: int = 280) -> hf.Tokenizer:
    """A byte-level BPE whose special tokens come first, as most trainers leave them."""
    backend = hf.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([TEXT], trainer)
    return backend


def from_file(path: Path, **options: Any) -> Tokenizer:
    return train_tokenizer((), choose("tokenizer", "file", {"path": str(path), **options}))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    backend = trained([END_OF_TEXT, "<s>"])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    backend.add_tokens([AddedToken(SPACES, special=False)])
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    backend.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    """The two files as GPT-2 was published: the end of text is the last id of the vocabulary."""
    backend = trained([])
    folder = tmp_path / "gpt2"
    folder.mkdir()
    backend.model.save(str(folder))
    vocabulary = json.loads((folder / "vocab.json").read_text())
    vocabulary[END_OF_TEXT] = len(vocabulary)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    return folder


def test_the_end_of_text_lies_where_the_file_has_it(saved: Path) -> None:
    tokenizer = from_file(saved)
    assert tokenizer.end_of_text_id == 0
    assert tokenizer.vocab_size == 281
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode([*ids, 0, *ids]) == f"{TEXT}{END_OF_TEXT}{TEXT}"
    with pytest.raises(InputError, match="token id 281 is not in the vocabulary"):
        tokenizer.decode([281])


def test_text_is_encoded_as_the_library_does_without_additions(saved: Path) -> None:
    library = hf.Tokenizer.from_file(str(saved))
    library.no_truncation()
    library.no_padding()
    tokenizer = from_file(saved)
    text = f"{TEXT}{SPACES}{TEXT}"
    assert tokenizer.encode(text).tolist() == library.encode(text, add_special_tokens=False).ids
    assert 280 in tokenizer.encode(text)
    assert 1 not in tokenizer.encode(text)


@pytest.mark.parametrize("name", [END_OF_TEXT, "<s>"])
def test_no_text_encodes_to_a_special_token(saved: Path, name: str) -> None:
    tokenizer = from_file(saved)
    ids = tokenizer.encode(f"say {name} here")
    assert not {0, 1} & set(ids.tolist())
    assert tokenizer.decode(ids) == f"say {name} here"


def test_an_end_of_text_that_is_not_marked_special_is_kept_out_of_text(tmp_path: Path) -> None:
    backend = trained([])
    backend.add_tokens([AddedToken("</s>", special=False)])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = from_file(tmp_path, end_of_text="</s>")
    assert tokenizer.end_of_text_id == 280
    assert 280 not in tokenizer.encode("say </s> here")


def test_it_survives_being_saved_and_read(saved: Path, tmp_path: Path) -> None:
    tokenizer = from_file(saved)
    tokenizer.save(tmp_path / "ours.json")
    again = load_tokenizer(tmp_path / "ours.json")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.end_of_text_id == 0
    assert again.encode(f"{TEXT}{END_OF_TEXT}").tolist() == (
        tokenizer.encode(f"{TEXT}{END_OF_TEXT}").tolist()
    )


def test_prepared_documents_end_with_that_id(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("|".join(f"the dog {index}" for index in range(30)))
    data = DataConfig("text", str(tmp_path / "text.txt"), separator="|")
    prepared = prepare(data, choose("tokenizer", "file", {"path": str(saved)}), tmp_path / "cache")
    tokens = prepared.train.tokens[:]
    assert (tokens == 0).sum() == prepared.train.documents
    assert tokens[-1] == 0
    assert prepared.tokenizer.decode(tokens).startswith("the dog ")


def test_bytes_of_each_id_add_up_to_the_text(saved: Path) -> None:
    tokenizer = from_file(saved)
    sizes = tokenizer.token_bytes()
    assert sizes is not None
    text = f"{TEXT}{SPACES}é"
    assert sizes[tokenizer.encode(text)].sum() == len(text.encode())
    assert sizes[tokenizer.end_of_text_id] == 0


def test_ids_of_a_vocabulary_of_words_have_no_bytes_of_their_own(tmp_path: Path) -> None:
    words = {END_OF_TEXT: 0, "[UNK]": 1, "dog": 2}
    backend = hf.Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens([END_OF_TEXT])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = from_file(tmp_path)
    assert tokenizer.token_bytes() is None
    assert tokenizer.unknown_id == 1
    assert tokenizer.encode("dog cat").tolist() == [2, 1]


@pytest.mark.parametrize("names", [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")])
def test_gpt2_is_read_under_both_names(gpt2: Path, names: tuple[str, str]) -> None:
    reference = trained([])
    for old, new in zip(("vocab.json", "merges.txt"), names, strict=True):
        (gpt2 / old).rename(gpt2 / new)
    config = choose("tokenizer", "gpt2", {"path": str(gpt2)})
    tokenizer = train_tokenizer((), config)
    assert tokenizer.end_of_text_id == 280
    assert tokenizer.vocab_size == 281
    assert tokenizer.encode(TEXT).tolist() == reference.encode(TEXT).ids
    assert 280 not in tokenizer.encode(END_OF_TEXT)
    assert tokenizer.decode(tokenizer.encode(f"{TEXT}{END_OF_TEXT}")) == f"{TEXT}{END_OF_TEXT}"


def test_the_hash_is_of_what_files_say_and_not_of_where_they_lie(gpt2: Path, saved: Path) -> None:
    def digest(name: str, path: Path) -> str | None:
        return files_hash(choose("tokenizer", name, {"path": str(path)}))

    first = digest("gpt2", gpt2)
    (gpt2 / "vocab.json").rename(gpt2 / "encoder.json")
    (gpt2 / "merges.txt").rename(gpt2 / "vocab.bpe")
    gpt2.rename(gpt2.with_name("moved"))
    moved = gpt2.with_name("moved")
    assert digest("gpt2", moved) == first
    lines = (moved / "vocab.bpe").read_text().splitlines()
    (moved / "vocab.bpe").write_text("\n".join(lines[:-1]) + "\n")
    assert digest("gpt2", moved) != first
    assert digest("file", saved) == digest("file", saved.parent)
    assert files_hash(choose("tokenizer", "bytes")) is None


def test_a_changed_file_is_another_folder(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the dog runs " * 20)
    data = DataConfig("text", str(tmp_path / "text.txt"))
    config = choose("tokenizer", "file", {"path": str(saved)})
    first = prepare(data, config, tmp_path / "cache").directory
    assert prepare(data, config, tmp_path / "cache").directory == first
    trained([END_OF_TEXT], 270).save(str(saved))
    assert prepare(data, config, tmp_path / "cache").directory != first


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"cannot be read \(No such file or directory\)"),
        ("{", "is not JSON|is not a tokenizer.json"),
        ('{"version": "1.0"}', "is not a tokenizer.json"),
        (b"\xff", "cannot be read .it is not UTF-8"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=f"tokenizer.json ?.*({message})"):
        from_file(path)


def test_a_name_that_ends_no_document_lists_those_there_are(saved: Path) -> None:
    with pytest.raises(
        InputError, match=r"no token </s> .*special tokens are <\|endoftext\|>, <s>"
    ):
        from_file(saved, end_of_text="</s>")


def test_a_folder_without_both_files_of_gpt2_is_refused(gpt2: Path) -> None:
    (gpt2 / "merges.txt").unlink()
    with pytest.raises(InputError, match=r"is not a folder with vocab\.json and merges\.txt, or"):
        train_tokenizer((), choose("tokenizer", "gpt2", {"path": str(gpt2)}))


def test_merges_that_do_not_fit_the_vocabulary_are_refused(gpt2: Path) -> None:
    (gpt2 / "merges.txt").write_text("#version: 0.2\nno pe\n")
    with pytest.raises(InputError, match=r"vocab\.json and merges\.txt are not a vocabulary"):
        train_tokenizer((), choose("tokenizer", "gpt2", {"path": str(gpt2)}))


def text_corpus(folder: Path, text: str) -> DataConfig:
    (folder / "text.txt").write_text(text)
    return DataConfig("text", str(folder / "text.txt"))


@pytest.mark.parametrize(
    ("normalizer", "spaces", "text", "is_kept"),
    [
        (None, False, TEXT, True),
        (normalizers.NFC(), False, TEXT, True),
        (normalizers.NFC(), False, TEXT + "e\u0301", False),
        (normalizers.Lowercase(), False, TEXT, False),
        (None, True, TEXT, False),
    ],
)
def test_bits_per_byte_need_text_that_comes_back(
    tmp_path: Path, normalizer: Any, spaces: bool, text: str, is_kept: bool
) -> None:
    backend = trained([END_OF_TEXT])
    backend.normalizer = normalizer
    if spaces:
        words = [pre_tokenizers.WhitespaceSplit(), backend.pre_tokenizer]
        backend.pre_tokenizer = pre_tokenizers.Sequence(words)
    backend.save(str(tmp_path / "tokenizer.json"))
    choice = choose("tokenizer", "file", {"path": str(tmp_path)})
    val = prepare(text_corpus(tmp_path, text), choice, tmp_path / "cache").val
    assert (val.bytes is not None, val.altered) == (is_kept, int(not is_kept))
    # Of ready tokens the text is not known, so that none must be changed.
    assert (from_file(tmp_path).token_bytes() is None) == bool(normalizer or spaces)


def as_pieces(model: str, letters: str) -> hf.Tokenizer:
    """A vocabulary of words that has the name of the end of text among them."""
    words = ["<unk>", END_OF_TEXT, *TEXT.split(), *letters]
    pieces = list(dict.fromkeys(words))
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    if model == "Unigram":
        backend = hf.Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 0))
    else:
        backend = hf.Tokenizer(getattr(models, model)(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([END_OF_TEXT])
    return backend


@pytest.mark.parametrize("model", ["Unigram", "WordLevel", "WordPiece"])
def test_the_end_of_text_is_spelled_where_it_is_a_piece_of_text(tmp_path: Path, model: str) -> None:
    backend = as_pieces(model, END_OF_TEXT)
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = from_file(tmp_path)
    ids = tokenizer.encode(f"dog {END_OF_TEXT} cat dog {END_OF_TEXT}").tolist()
    spelled = [backend.token_to_id(letter) for letter in END_OF_TEXT]
    dog = backend.token_to_id("dog")
    assert tokenizer.end_of_text_id == 1
    assert ids == [dog, *spelled, *ids[14:-14], dog, *spelled]


def test_an_end_of_text_that_cannot_be_spelled_is_refused(tmp_path: Path) -> None:
    backend = as_pieces("WordLevel", "")
    backend.model = models.WordLevel(backend.get_vocab(), unk_token="absent")
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = from_file(tmp_path)
    assert len(tokenizer.encode("dog runs")) == 2
    with pytest.raises(InputError, match="which tokenizer=file cannot spell"):
        tokenizer.encode(f"dog {END_OF_TEXT}")
