"""Token files of other projects, memory-mapped in place: raw uint16 as written by nanoGPT, and
files with the header of llm.c and modded-nanogpt."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from lm_experiments.data.config import DataConfig
from lm_experiments.data.file_cache import Facts, cached_scan
from lm_experiments.data.hashing import hash_of
from lm_experiments.data.store import CHUNK_TOKENS, DTYPES, ShardedTokens, Tokens, TokenStore
from lm_experiments.data.tokenizers.base import Tokenizer
from lm_experiments.errors import InputError

HEADER_INTS = 256
MAGIC = 20240520
VERSION = 1
TOKEN_BYTES = 2
PATTERNS = {"train": "*train*.bin", "val": "*val*.bin"}


def open_token_files(
    config: DataConfig, tokenizer: Tokenizer, cache_dir: Path
) -> tuple[TokenStore, TokenStore, str]:
    """Return the training and the validation tokens, and the hash of both.

    Each file is read once to hash and check it. Raises `InputError` if a file is missing or
    damaged, or holds an id that is not in the vocabulary.
    """
    files = {split: _files(config, split) for split in PATTERNS}
    scans = {
        split: [_checked(path, tokenizer.vocab_size, cache_dir) for path in paths]
        for split, paths in files.items()
    }
    hashes = {split: [facts["sha256"] for facts in found] for split, found in scans.items()}
    train = _store(files["train"], tokenizer, None)
    # Bits per byte need the size of the validation text alone.
    val = _store(files["val"], tokenizer, tokenizer.token_bytes())
    return train, val, hash_of({"tokens": hashes})


def _files(config: DataConfig, split: str) -> list[Path]:
    folder = Path(str(config.path)).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"data.path={config.path} is not a folder; type the folder of the .bin files, and "
            "data.train_files= and data.val_files= if their names do not contain train and val"
        )
    pattern = getattr(config, f"{split}_files") or PATTERNS[split]
    found = sorted(path for path in folder.glob(pattern) if path.is_file())
    if not found:
        raise InputError(
            f"data.path={config.path} has no file {pattern}; type data.{split}_files= and a "
            "pattern that matches"
        )
    return found


def _checked(path: Path, vocab_size: int, cache_dir: Path) -> Facts:
    facts = cached_scan(path, "token file", _scan, cache_dir)
    if facts["largest"] >= vocab_size:
        raise InputError(
            f"{path} holds the token id {facts['largest']}, but the vocabulary has {vocab_size}; "
            f"type tokenizer.vocab_size={facts['largest'] + 1} or more, or choose the tokenizer "
            "that made it"
        )
    return facts


def _scan(path: Path) -> Facts:
    digest = hashlib.sha256()
    largest = 0
    for chunk in _chunks(_map(path)):
        digest.update(chunk.tobytes())
        largest = max(largest, int(chunk.max()))
    return {"sha256": digest.hexdigest(), "largest": largest}


def _map(path: Path) -> Tokens:
    size = path.stat().st_size
    offset = _header_bytes(path, size)
    if size == offset or (size - offset) % TOKEN_BYTES:
        raise InputError(
            f"{path} has {size} bytes, which is not a whole number of 2-byte token ids; "
            "copy it again, or leave it out of data.path"
        )
    return np.memmap(path, dtype=DTYPES["uint16"], mode="r", offset=offset)


def _header_bytes(path: Path, size: int) -> int:
    """Return the offset of the first token: the size of the header, 0 without one."""
    first = np.fromfile(path, dtype="<i4", count=3)
    if len(first) < 3 or first[0] != MAGIC:
        return 0
    _, version, promised = (int(number) for number in first)
    if version != VERSION:
        raise InputError(
            f"{path} has header version {version}, but only version {VERSION} (2-byte tokens) is "
            "supported; write it again with a script for GPT-2 tokens"
        )
    header = 4 * HEADER_INTS
    held = (size - header) // TOKEN_BYTES
    if held != promised:
        raise InputError(
            f"{path} holds {held} tokens, but its header says {promised}; copy it again"
        )
    return header


def _store(
    paths: list[Path], tokenizer: Tokenizer, token_bytes: NDArray[np.int64] | None
) -> TokenStore:
    parts = [_map(path) for path in paths]
    text_bytes = None
    if token_bytes is not None:
        count = partial(np.bincount, minlength=len(token_bytes))
        text_bytes = sum(int(count(c) @ token_bytes) for part in parts for c in _chunks(part))
    return TokenStore(
        path=paths[0],
        tokens=parts[0] if len(parts) == 1 else ShardedTokens(parts),
        documents=None,
        bytes=text_bytes,
        vocab_size=tokenizer.vocab_size,
        tokenizer_fingerprint=tokenizer.fingerprint,
        unknown=0,
    )


def _chunks(tokens: Tokens) -> list[Tokens]:
    """Split tokens into views, so that a file larger than memory can be read."""
    return cast("list[Tokens]", np.array_split(tokens, 1 + len(tokens) // CHUNK_TOKENS))
