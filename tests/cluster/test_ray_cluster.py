"""A Ray cluster of several nodes, all of them on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from harness.commands import ROOT
from harness.processes import Place, until
from harness.runs import result

pytest.importorskip("ray")
LONG = (
    "code_paths=[code.py]",
    "norm=noting",
    "seed=0,1,2,3",
    "trainer.max_steps=60",
    "trainer.checkpoint_every=5",
    "hydra/launcher=ray",
    "name=c",
)


class Nodes:
    """Starts the nodes of a cluster, each with an environment of its own."""

    def __init__(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        from ray.cluster_utils import Cluster

        for key in [key for key in os.environ if key.startswith(("RAY_", "SLURM_"))]:
            monkeypatch.delenv(key)
        self.monkeypatch = monkeypatch
        self.place = place
        self.cluster = Cluster()

    def add(self, path: str, cpus: int) -> Any:
        for key, value in {**self.place.environment, "PYTHONPATH": path}.items():
            self.monkeypatch.setenv(key, value)
        return self.cluster.add_node(num_cpus=cpus, object_store_memory=78643200)


@pytest.fixture
def nodes(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    started = Nodes(place, monkeypatch)
    yield started
    started.cluster.shutdown()
    place.kill()


@pytest.mark.slow
def test_runs_of_a_killed_node_go_on_elsewhere(place: Place, nodes: Nodes) -> None:
    nodes.add(str(ROOT), 1)
    second = nodes.add(str(ROOT), 1)
    before = set(place.living())
    words = (*LONG, f"ray.address={nodes.cluster.address}")
    folder = place.folder / "runs" / "c"

    def started() -> bool:
        return len({path.parents[1] for path in folder.glob("*/checkpoints/*.ckpt")}) >= 2

    with place.start(*words, beside=before, PAUSE="0.1") as sweep:
        until(started, 120, "two runs to save a checkpoint", sweep)
        nodes.cluster.remove_node(second, allow_graceful=False)
        answer = sweep.wait(200)
    assert answer.code == 0, answer.text
    assert f"2 runs at once on the Ray cluster at {nodes.cluster.address}" in answer.text
    assert "was lost with its worker; trying again." in answer.text
    assert "4 done, 0 failed" in answer.text
    logs = [path.read_text() for path in folder.glob("*/train.log")]
    assert any(log.count(" trains ") == 2 for log in logs), "no run was continued"
    for run in folder.glob("*/result.json"):
        rows = (run.parent / "metrics.jsonl").read_text().splitlines()
        assert result(run.parent)["steps"] == 60
        assert len(rows) == len(set(rows))


@pytest.mark.slow
def test_a_node_with_other_code_is_refused(place: Place, nodes: Nodes) -> None:
    other = place.folder / "other"
    shutil.copytree(ROOT / "lm_experiments", other / "lm_experiments")
    (other / "lm_experiments" / "later.py").write_text('"""Another version."""\n')
    nodes.add(str(other), 1)
    before = set(place.living())
    words = ("seed=0,1", "hydra/launcher=ray", f"ray.address={nodes.cluster.address}", "name=v")
    with place.start(*words, beside=before) as sweep:
        answer = sweep.wait(120)
    assert answer.code == 2, answer.text
    assert "has another version of the code (lm_experiments " in answer.text
    assert not list((place.folder / "runs/v").glob("*/result.json"))


@pytest.mark.slow
def test_an_address_that_does_not_answer_is_refused_in_bounded_time(place: Place) -> None:
    answer = place.train(
        "seed=0,1", "hydra/launcher=ray", "ray.address=127.0.0.1:1", "name=u", seconds=60
    )
    assert answer.code == 2
    assert "error: ray.address=127.0.0.1:1 cannot be reached" in answer.text
