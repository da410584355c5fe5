"""The last validation pass keeps the loss of each document beside the loss of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness.runs import result
from numpy.typing import NDArray

from lm_experiments.data import EvaluationBatches, PreparedData, prepare
from lm_experiments.data.documents import DocumentSums, document_ends
from lm_experiments.data.tokens import ShardedTokens
from lm_experiments.rundir.documents import DocumentLosses, read_document_losses
from lm_experiments.training.checkpoints import load_model
from lm_experiments.training.config import load_config

RunOf = Callable[..., Path]

DOCUMENTS = 40


@pytest.fixture
def texts(tmp_path: Path) -> str:
    """A folder of documents of many lengths, the shortest far below a context of 16."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(DOCUMENTS):
        (folder / f"{i:02}.txt").write_text(f"text {i} " * (1 + i % 9))
    return f"data.path={folder}"


def prepared(run: Path) -> PreparedData:
    config = load_config(run)
    return prepare(config.data.corpus, config.tokenizer, Path(config.cache_dir).expanduser())


def one_by_one(run: Path) -> list[tuple[float, int]]:
    """Return loss and tokens of each document, from the logits of each window alone."""
    config, data = load_config(run), prepared(run)
    model = load_model(run, config)
    end, context = data.tokenizer.end_of_text_id, config.model.context_length
    found, document = {0: (0.0, 0)}, 0
    stream = torch.from_numpy(np.asarray(data.val.tokens[:]).astype(np.int64))
    for position in range(1, len(stream)):
        document += int(stream[position - 1] == end)
        start = (position - 1) // context * context
        with torch.no_grad():
            logits = model(stream[start:position][None])[0, -1]
        loss = F.cross_entropy(logits, stream[position]).item()
        total, tokens = found.get(document, (0.0, 0))
        found[document] = (total + loss, tokens + 1)
    return [found[index] for index in sorted(found)]


def documents(run: Path) -> DocumentLosses:
    found = read_document_losses(run)
    assert found is not None
    return found


def test_where_there_is_a_test_part_its_documents_are_kept(run_of: RunOf, texts: str) -> None:
    run = run_of("-m", "seed=0", texts, "data.val_fraction=0.2", "data.test_fraction=0.3")
    found, values, test = documents(run), result(run), prepared(run).test
    assert test is not None
    assert len(found.tokens) == test.documents
    assert found.tokens.sum() == values["test_tokens"]
    assert found.sums.sum() == pytest.approx(values["test_loss"] * values["test_tokens"], rel=1e-6)


def test_each_document_has_the_loss_of_its_own_tokens(run_of: RunOf, texts: str) -> None:
    run = run_of("-m", "seed=0", texts, "data.val_fraction=0.3", "trainer.val_every=2")
    found, values = documents(run), result(run)
    assert found.tokens.sum() == values["val_tokens"]
    assert found.sums.sum() == pytest.approx(values["val_loss"] * values["val_tokens"], rel=1e-6)
    expected = one_by_one(run)
    assert len(found.tokens) == len(expected) == prepared(run).val.documents
    assert found.tokens.tolist() == [tokens for _, tokens in expected]
    np.testing.assert_allclose(found.sums, [loss for loss, _ in expected], rtol=1e-5)


@pytest.mark.parametrize("val_every", [2, 3, 100])
def test_the_losses_are_those_of_the_last_weights(run_of: RunOf, val_every: int) -> None:
    """The last pass belongs to the last step, or comes after it."""
    run = run_of(f"trainer.val_every={val_every}")
    values = result(run)
    wanted = values["val_loss"] * values["val_tokens"]
    assert documents(run).sums.sum() == pytest.approx(wanted, rel=1e-6)


def test_batches_do_not_change_the_documents(run_of: RunOf, texts: str) -> None:
    runs = [run_of(texts, f"data.eval_batch_size={size}", f"name=b{size}") for size in (1, 3)]
    one, three = map(documents, runs)
    assert one.tokens.tolist() == three.tokens.tolist()
    np.testing.assert_allclose(one.sums, three.sums, rtol=1e-5)


@pytest.mark.parametrize("stop", ["before the checkpoint", "after it"])
def test_a_run_that_goes_on_writes_the_same_file(
    stop: str, train: Callable[..., object], run_of: RunOf
) -> None:
    words = ("name=r", "trainer.max_steps=4", "trainer.checkpoint_every=2", "trainer.val_every=3")
    run = run_of(*words)
    path = run / "documents.npz"
    content, wanted = path.read_bytes(), result(run)["val_loss"]
    (run / "result.json").unlink()
    if stop == "before the checkpoint":
        path.unlink()
        newest = max((run / "checkpoints").iterdir())
        newest.unlink()
    train(*words)
    assert result(run)["val_loss"] == wanted
    assert path.read_bytes() == content


def tokens(*ids: int) -> NDArray[np.uint16]:
    return np.array(ids, np.uint16)


@pytest.mark.parametrize(
    ("stream", "ends", "counts"),
    [
        (tokens(1, 2, 9, 3, 9), [2, 4], [2, 2]),
        (tokens(1, 2, 9, 3, 4), [2, 4], [2, 2]),
        (tokens(9, 1, 9), [0, 2], [0, 2]),
        (tokens(9, 9, 9), [0, 1, 2], [0, 1, 1]),
        (ShardedTokens([tokens(1, 9), tokens(2, 9, 3)]), [1, 3, 4], [1, 2, 1]),
        (tokens(1, 2, 3), [], []),
    ],
)
def test_a_document_ends_with_its_end_of_text(
    stream: NDArray[np.uint16], ends: list[int], counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lm_experiments.data.documents.CHUNK_TOKENS", 2)
    found = document_ends(stream, 9)
    assert found.tolist() == ends
    if ends:
        assert DocumentSums(found).tokens.tolist() == counts


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_parts_of_processes_add_up(world_size: int) -> None:
    """The loss of each target is its position, so that sums are known."""
    stream = tokens(1, 2, 9, 3, 9, 4, 5, 6, 7, 8, 9)
    ends = document_ends(stream, 9)
    parts = [DocumentSums(ends) for _ in range(world_size)]
    for rank, part in enumerate(parts):
        batches = EvaluationBatches(stream, 3, 2, rank, world_size)
        for index in range(len(batches)):
            starts = batches.starts(index)
            part.add(starts, np.float32(starts[:, None] + [1, 2, 3]))
    sums = sum(part.sums for part in parts)
    assert np.asarray(sums).tolist() == [1 + 2, 3 + 4, 5 + 6 + 7 + 8 + 9 + 10]
