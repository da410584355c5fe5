"""Directories sent through a real Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lm_experiments.launch.ray_files import AHEAD, PIECE_BYTES, copy_from, streamed, this_node

ray = pytest.importorskip("ray")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for key in [key for key in os.environ if key.startswith("RAY_")]:
        monkeypatch.delenv(key)
    ray.init(
        address="local",
        num_cpus=1,
        num_gpus=0,
        include_dashboard=False,
        object_store_memory=20 * PIECE_BYTES,
        log_to_driver=False,
    )
    yield this_node()
    ray.shutdown()


@pytest.mark.slow
def test_a_directory_larger_than_the_memory_of_ray_is_sent_a_few_pieces_at_a_time(
    node: str, tmp_path: Path
) -> None:
    run, there = tmp_path / "run", tmp_path / "there"
    (run / "checkpoints").mkdir(parents=True)
    (run / "result.json").write_text("{}")
    content = os.urandom(PIECE_BYTES) * 30 + b"end"
    (run / "checkpoints" / "step.ckpt").write_bytes(content)
    copy_from(node, run, there)
    assert (there / "checkpoints" / "step.ckpt").read_bytes() == content
    assert (there / "result.json").read_text() == "{}"
    made = tmp_path / "made"
    made.mkdir()

    def pieces() -> Iterator[bytes]:
        for number in range(30):
            (made / str(number)).touch()
            yield bytes(PIECE_BYTES)

    coming = streamed(node, pieces)
    next(coming)
    time.sleep(3)
    assert len(list(made.iterdir())) <= AHEAD + 2
    assert len(list(coming)) == 29
