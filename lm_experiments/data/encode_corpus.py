"""Encode a corpus: write its tokenizer and the token store of each part to a folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_experiments.data.config import PARTS, DataConfig
from lm_experiments.data.corpora import TextDigest, check_unchanged, load_documents
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.hub import Dataset, limited, part_of, source_key
from lm_experiments.data.overlap import Overlap, PartText
from lm_experiments.data.progress import EncodingProgress
from lm_experiments.data.split import split_documents
from lm_experiments.data.store import StoreWriter
from lm_experiments.data.tokenizers import Tokenizer, train_tokenizer
from lm_experiments.errors import InputError
from lm_experiments.registry import Choice, options_of, plain_choice
from lm_experiments.rundir.words import size

RECORD = "prepared.json"
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1 << 24

Labelled = Iterable[tuple[str, str]]
Batches = Iterator[tuple[str, list[str]]]

logger = logging.getLogger(__name__)


def encode_in_memory(folder: Path, data: DataConfig, config: Choice, data_hash: str) -> None:
    """Encode a corpus that is read into memory: the King James Bible or text files."""
    documents = load_documents(data)
    check_unchanged(documents, data, data_hash)
    split = split_documents(documents.texts, data)
    logger.info("training the %s tokenizer on %d documents", config.name, len(split.train))
    tokenizer = train_tokenizer(split.train, config)
    labelled = ((name, text) for name in data.parts for text in getattr(split, name))
    expected = sum(len(text.encode()) for text in documents.texts)
    facts, _ = _write(folder, data, tokenizer, labelled, expected)
    _record(folder, data, config, {"data_hash": data_hash, **facts})


def encode_stream(
    folder: Path, data: DataConfig, config: Choice, key: str, cache_dir: Path
) -> None:
    """Encode a streamed corpus, batch by batch; its text is hashed on the way.

    Raises `InputError` if a split is empty, or the files change meanwhile.
    """
    dataset = Dataset(data, cache_dir)
    sizes = [dataset.expected_bytes(split) for split in dataset.splits]
    total = None if None in sizes else sum(filter(None, sizes))
    amount = "unknown size" if total is None else f"about {size(total)}"
    logger.info("%s is read from %s: text of %s", data.name, data.path or data.dataset, amount)
    tokenizer = _tokenizer(dataset, config)
    facts, hashes = _write(folder, data, tokenizer, _labelled(dataset), total)
    for name in data.parts:
        if not facts[name]["documents"]:
            of_validation = "val_split" if data.divided else "val_fraction"
            raise InputError(
                f"data.name={data.name} leaves no {PARTS[name]} text; type another "
                f"data.{'test_fraction' if name == 'test' else of_validation}, or raise "
                "data.max_documents and data.max_bytes where they are set"
            )
    if data.path and source_key(data, cache_dir) != key:
        raise InputError(
            f"data.path={data.path} changed while it was read; start again when it is complete"
        )
    files = {split: dataset.files(split) for split in dataset.splits}
    _record(folder, data, config, {"data_hash": hash_of(hashes), "files": files, **facts})


def recorded(folder: Path) -> tuple[str, dict[str, Overlap]]:
    """Return the data hash of a prepared folder, and what of each held-out part is in training.

    Raises `InputError` if the record is damaged. Folders of earlier versions lack the overlap.
    """
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        overlaps = {part: Overlap(**found) for part, found in record.get("overlap", {}).items()}
        return str(record["data_hash"]), overlaps
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder / RECORD} is damaged; prepare the data again") from error


def _write(
    folder: Path, data: DataConfig, tokenizer: Tokenizer, documents: Labelled, expected: int | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Write the tokenizer and all stores; return what to record, and the hash of each text."""
    tokenizer.save(folder / "tokenizer.json")
    writers = {name: StoreWriter(folder / f"{name}.bin", tokenizer) for name in data.parts}
    digests = {name: TextDigest() for name in data.parts}
    contents = {name: PartText() for name in data.parts}
    token_bytes = 2 if tokenizer.vocab_size <= 1 << 16 else 4
    progress = EncodingProgress(data.name, expected, token_bytes)
    with ExitStack() as files, progress:
        for writer in writers.values():
            files.enter_context(writer)
        for name, batch in _said_to_hold(tokenizer.end_of_text, _batches(documents)):
            sizes = [digests[name].add(text) for text in batch]
            contents[name].add(batch)
            encoded = tokenizer.encode_batch(batch)
            if name != "train":
                writers[name].add_altered(tokenizer.altered(batch, encoded))
            for ids, text_bytes in zip(encoded, sizes, strict=True):
                writers[name].add(ids, text_bytes)
            progress.add(len(batch), sum(sizes), sum(map(len, encoded)) + len(encoded))
    facts = {name: writer.header for name, writer in writers.items()}
    train = contents.pop("train")
    facts["overlap"] = {name: asdict(part.overlap(train)) for name, part in contents.items()}
    return facts, {name: digest.hexdigest() for name, digest in digests.items()}


def _said_to_hold(end: str, batches: Batches) -> Batches:
    """Yield batches of documents, with one warning where the name of the end of text is in one."""
    is_said = False
    for name, batch in batches:
        if not is_said and any(end in text for text in batch):
            is_said = True
            logger.warning(
                "the text holds %s, which is encoded like other words and ends no document; type "
                "'data.separator=\"%s\"' to cut the text there",
                end,
                end,
            )
        yield name, batch


def _tokenizer(dataset: Dataset, config: Choice) -> Tokenizer:
    texts: Iterator[str] = (text for name, text in _labelled(dataset) if name == "train")
    most = getattr(options_of("tokenizer", config), "sample_bytes", None)
    if most is not None:
        texts = limited(texts, None, most)
        logger.info("training the %s tokenizer on at most %s of text", config.name, size(most))
    return train_tokenizer(texts, config)


def _labelled(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Yield every document, labelled with its split, in reading order."""
    train, *val = dataset.splits
    for text in dataset.documents(train):
        yield part_of(text, dataset.config), text
    for split in val:
        yield from (("val", text) for text in dataset.documents(split))


def _batches(documents: Labelled) -> Batches:
    """Yield batches of documents of one part; the order within a part is kept."""
    pending: dict[str, list[str]] = {name: [] for name in PARTS}
    characters = dict.fromkeys(PARTS, 0)
    for name, text in documents:
        pending[name].append(text)
        characters[name] += len(text)
        if characters[name] >= BATCH_CHARACTERS or len(pending[name]) >= BATCH_DOCUMENTS:
            yield name, pending[name]
            pending[name], characters[name] = [], 0
    yield from ((name, batch) for name, batch in pending.items() if batch)


def _record(folder: Path, data: DataConfig, config: Choice, facts: dict[str, Any]) -> None:
    record = {"data": asdict(data), "tokenizer": plain_choice("tokenizer", config), **facts}
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
