"""Write small folders with the layout of hub datasets, for tests without a network."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

SEPARATOR = "<|endoftext|>"
TRAIN = [f"Story {index}.\n\nThe dog {index % 5} ran to the end." for index in range(60)]
VAL = [f"Other {index}.\nA cat slept." for index in range(7)]


def as_text(folder: Path, train: Sequence[str] = TRAIN, val: Sequence[str] = VAL) -> Path:
    """TinyStories as the course takes it: a separator on its own line after each story."""
    folder.mkdir(parents=True)
    for name, texts in (("train", train), ("valid", val)):
        content = "".join(f"{text}\n{SEPARATOR}\n" for text in texts)
        (folder / f"TinyStoriesV2-GPT4-{name}.txt").write_text(content)
    return folder


def as_parquet(folder: Path, train: Sequence[str] = TRAIN, val: Sequence[str] = VAL) -> Path:
    """TinyStories as the hub shows it: numbered shards of each split below `data`."""
    (folder / "data").mkdir(parents=True)
    half = len(train) // 2
    shards = {
        "train-00000-of-00002-a1": train[:half],
        "train-00001-of-00002-b2": train[half:],
        "validation-00000-of-00001-c3": val,
    }
    for name, texts in shards.items():
        table = pa.table({"id": list(range(len(texts))), "text": list(texts)})
        parquet.write_table(table, folder / "data" / f"{name}.parquet")
    return folder


def as_jsonl(folder: Path, train: Sequence[str] = TRAIN, val: Sequence[str] = VAL) -> Path:
    """Lines of JSON, one file for each split."""
    folder.mkdir(parents=True)
    for name, texts in (("train", train), ("validation", val)):
        rows = (json.dumps({"text": text, "id": 1}) + "\n" for text in texts)
        (folder / f"{name}.jsonl").write_text("".join(rows))
    return folder


LAYOUTS: dict[str, Callable[..., Path]] = {
    "text": as_text,
    "parquet": as_parquet,
    "jsonl": as_jsonl,
}
