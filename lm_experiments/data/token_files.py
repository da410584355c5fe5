"""Token files of other projects, memory-mapped in place: raw ids as written by nanoGPT, of two
bytes or four, and files with the header of llm.c and modded-nanogpt."""

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
from lm_experiments.data.lfs import check_pulled
from lm_experiments.data.store import CHUNK_TOKENS, DTYPES, TokenStore
from lm_experiments.data.tokenizers.base import Tokenizer
from lm_experiments.data.tokens import ShardedTokens, Tokens
from lm_experiments.errors import InputError

HEADER_INTS = 256
# The version and the type of the ids that go with each magic number of llm.c.
VERSIONS = {20240520: (1, "uint16"), 20240801: (7, "uint32")}
# Files with 8-byte ids are recognised, in order to be refused.
WIDTHS = {**DTYPES, "uint64": np.dtype(np.uint64).newbyteorder("<")}
FOREIGN = {b"LMTOKENS": "a token store of prepared data", b"\x93NUMPY": "a NumPy array"}
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
    maps = {
        split: [_map(path, facts["dtype"]) for path, facts in zip(paths, scans[split], strict=True)]
        for split, paths in files.items()
    }
    train = _store(files["train"][0], maps["train"], tokenizer, None)
    # Bits per byte need the size of the validation text alone.
    val = _store(files["val"][0], maps["val"], tokenizer, tokenizer.token_bytes())
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
    facts = cached_scan(path, "token widths", _scan, cache_dir)
    facts |= {"dtype": _dtype(path, facts, vocab_size)}
    largest = facts["largest"][facts["dtype"]]
    if largest >= vocab_size:
        raise InputError(
            f"{path} holds the token id {largest}, but the vocabulary has {vocab_size}; "
            f"type tokenizer.vocab_size={largest + 1} or more, or choose the tokenizer "
            "that made it"
        )
    return facts


def _scan(path: Path) -> Facts:
    """Return the sha256 of the ids in a file, and the largest of them for each width they may have.

    `dtype` is the width that its header names, None without a header.
    """
    offset, dtype = _header(path)
    content = np.memmap(path, dtype=np.uint8, mode="r", offset=offset)
    widths = [name for name, width in WIDTHS.items() if dtype in (None, name)]
    largest = {name: 0 for name in widths if len(content) % WIDTHS[name].itemsize == 0}
    digest = hashlib.sha256()
    for start in range(0, len(content), CHUNK_TOKENS):
        chunk = content[start : start + CHUNK_TOKENS]
        digest.update(chunk.data)
        largest |= {n: max(top, int(chunk.view(WIDTHS[n]).max())) for n, top in largest.items()}
    return {"sha256": digest.hexdigest(), "largest": largest, "dtype": dtype}


def _dtype(path: Path, facts: Facts, vocab_size: int) -> str:
    """Return the type of the ids, without a header the widest whose ids a vocabulary can have.

    Narrow ids read as wide ones are huge, since two of them make one.
    """
    if facts["dtype"] is not None:
        return str(facts["dtype"])
    most = max(vocab_size, 1 << 16)
    fits = [name for name, largest in facts["largest"].items() if largest < most]
    dtype = fits[-1] if fits else "none"
    if dtype not in DTYPES or vocab_size > 1 << 8 * WIDTHS[dtype].itemsize:
        raise InputError(
            f"{path} does not hold 2-byte or 4-byte token ids of a vocabulary of {vocab_size}; "
            "choose the tokenizer that made it, or write it again as uint16 or, for a vocabulary "
            "above 65,536, as uint32"
        )
    return dtype


def _map(path: Path, dtype: str) -> Tokens:
    return np.memmap(path, dtype=DTYPES[dtype], mode="r", offset=_header(path)[0])


def _header(path: Path) -> tuple[int, str | None]:
    """Return the size of the header and the type of the ids it names, (0, None) without one."""
    check_pulled(path)
    with path.open("rb") as file:
        start = file.read(max(map(len, FOREIGN)))
    for beginning, kind in FOREIGN.items():
        if start.startswith(beginning):
            raise InputError(
                f"{path} is {kind} and not a file of bare token ids; leave it out of data.path"
            )
    size = path.stat().st_size
    offset, dtype, promised = 0, None, 0
    first = np.fromfile(path, dtype="<i4", count=3)
    if len(first) == 3 and first[0] in VERSIONS:
        magic, version, promised = (int(number) for number in first)
        known, dtype = VERSIONS[magic]
        if version != known:
            raise InputError(
                f"{path} has header version {version}, but only version {known} is supported; "
                "write it again with a current script"
            )
        offset = 4 * HEADER_INTS
    width = WIDTHS[dtype or "uint16"].itemsize
    if size == offset or (size - offset) % width:
        raise InputError(
            f"{path} has {size} bytes, which is not a whole number of {width}-byte token ids; "
            "copy it again, or leave it out of data.path"
        )
    held = (size - offset) // width
    if dtype and held != promised:
        raise InputError(
            f"{path} holds {held} tokens, but its header says {promised}; copy it again"
        )
    return offset, dtype


def _store(
    path: Path,
    parts: list[Tokens],
    tokenizer: Tokenizer,
    token_bytes: NDArray[np.int64] | None,
) -> TokenStore:
    text_bytes = None
    if token_bytes is not None:
        count = partial(np.bincount, minlength=len(token_bytes))
        text_bytes = sum(int(count(c) @ token_bytes) for part in parts for c in _chunks(part))
    return TokenStore(
        path=path,
        tokens=parts[0] if len(parts) == 1 else ShardedTokens(parts),
        documents=None,
        bytes=text_bytes,
        vocab_size=tokenizer.vocab_size,
        tokenizer_fingerprint=tokenizer.fingerprint,
        altered=0,
    )


def _chunks(tokens: Tokens) -> list[Tokens]:
    """Split tokens into views, so that a file larger than memory can be read."""
    return cast("list[Tokens]", np.array_split(tokens, 1 + len(tokens) // CHUNK_TOKENS))
