"""The losses of documents are read as they were written, and damage is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lm_experiments.errors import InputError
from lm_experiments.rundir.documents import (
    DocumentLosses,
    read_document_losses,
    write_document_losses,
)
from lm_experiments.rundir.names import DOCUMENTS

LOSSES = DocumentLosses(np.array([0.0, 1.25, np.pi]), np.array([0, 1, 3]))


def test_losses_of_documents_are_read_as_written(tmp_path: Path) -> None:
    assert read_document_losses(tmp_path) is None
    write_document_losses(tmp_path, LOSSES)
    first = (tmp_path / DOCUMENTS).read_bytes()
    write_document_losses(tmp_path, LOSSES)
    assert (tmp_path / DOCUMENTS).read_bytes() == first
    found = read_document_losses(tmp_path)
    assert found is not None
    np.testing.assert_array_equal(found.sums, LOSSES.sums)
    np.testing.assert_array_equal(found.tokens, LOSSES.tokens)
    assert [path.name for path in tmp_path.iterdir()] == [DOCUMENTS]


def written(path: Path, **arrays: object) -> bytes:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        "empty",
        "words",
        "array",
        "half",
        "flipped",
        "shapes",
        "negative",
        "type",
        "missing",
        "objects",
    ],
)
def test_a_damaged_file_is_one_sentence(damage: str, tmp_path: Path) -> None:
    write_document_losses(tmp_path, LOSSES)
    path = tmp_path / DOCUMENTS
    whole = path.read_bytes()
    middle = len(whole) // 3
    alone = tmp_path / "alone.npy"
    np.save(alone, LOSSES.sums)
    sums, tokens = LOSSES.sums, LOSSES.tokens
    content = {
        "empty": b"",
        "words": b"no numbers",
        "array": alone.read_bytes(),
        "half": whole[: len(whole) // 2],
        "flipped": whole[:middle]
        + bytes(255 - x for x in whole[middle : middle + 40])
        + whole[middle + 40 :],
        "shapes": written(path, sums=sums, tokens=tokens[:2]),
        "negative": written(path, sums=sums, tokens=-tokens),
        "type": written(path, sums=sums, tokens=tokens / 2),
        "missing": written(path, sums=sums),
        "objects": written(path, sums=sums.astype(object), tokens=tokens),
    }[damage]
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"documents.npz is damaged \(.*\); remove it; the run keeps"
    ):
        read_document_losses(tmp_path)
