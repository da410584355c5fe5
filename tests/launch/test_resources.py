"""What each run gets of the machines there are, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm_experiments.errors import InputError
from lm_experiments.launch.machine import places
from lm_experiments.launch.memory import free_gpu_memory
from lm_experiments.launch.ray_cluster import check_versions, read_cluster
from lm_experiments.launch.resources import (
    Demand,
    Node,
    Resources,
    Share,
    choose,
    devices_of,
    read_resources,
)

GIB = 1 << 30
SMALL = Demand(devices=1, on_cpu=False, memory=GIB)
EIGHT = [Node(cpus=64, gpus=8, memory=500 * GIB, gpu_memory=79 * GIB)]


@pytest.mark.parametrize(
    ("gpus", "nodes", "slots", "cpus"),
    [
        (None, EIGHT, 8, 8),
        (0.25, EIGHT, 32, 2),
        (2, EIGHT, 4, 16),
        (None, [Node(cpus=2)], 2, 1),
        (None, [Node(cpus=4, gpus=8)], 8, 0.5),
        (None, [Node(cpus=8, gpus=2), Node(cpus=16, gpus=4), Node(cpus=4)], 6, 4),
        (1 / 3, [Node(cpus=12, gpus=2)], 6, 2),
        (0.33, [Node(cpus=12, gpus=2)], 6, 2),
    ],
)
def test_shares(gpus: float | None, nodes: list[Node], slots: int, cpus: float) -> None:
    asked = Resources(gpus=gpus)
    demand = Demand(devices_of(asked, 1), on_cpu=False, memory=GIB)
    share = choose(asked, nodes, "here", demand)
    assert (share.slots, share.cpus) == (slots, cpus)
    assert share.threads == max(1, int(cpus))


@pytest.mark.parametrize(("held", "slots", "cpus"), [(2.5, 2, 4), (3, 2, 3), (9, 8, 1)])
def test_auto_leaves_memory_for_every_run_at_once(held: float, slots: int, cpus: float) -> None:
    nodes = [Node(cpus=8, memory=int(held * 4 * GIB))]
    share = choose(Resources(), nodes, "here", Demand(1, True, 4 * GIB))
    assert (share.slots, share.cpus) == (slots, cpus)


@pytest.mark.parametrize(
    ("asked", "demand", "slots", "threads"),
    [
        # Of many runs each gets a core, of a few each gets more.
        (Resources(), {"runs": 12}, 8, 1),
        (Resources(), {"runs": 3}, 3, 2),
        (Resources(at_once=1), {"runs": 12}, 1, 8),
        (Resources(at_once=4), {"runs": 12}, 4, 2),
        (Resources(at_once=4), {"runs": 12, "threads": 1}, 4, 1),
        (Resources(cpus=2), {"runs": 12}, 4, 2),
        (Resources(cpus=2, at_once=3), {"runs": 12}, 3, 2),
        # Threads that are typed, or that the sweep began with.
        (Resources(), {"runs": 12, "threads": 4}, 2, 4),
        (Resources(), {"runs": 12, "threads": 16}, 1, 16),
        (Resources(), {"runs": 12, "devices": 2}, 4, 2),
        (Resources(), {"runs": 12, "devices": 16}, 1, 8),
        (Resources(), {"runs": 12, "memory": 90 * GIB, "is_tried": True}, 1, 8),
    ],
)
def test_runs_at_once_and_threads_on_a_machine_of_eight_cores(
    asked: Resources, demand: dict[str, Any], slots: int, threads: int
) -> None:
    needed = Demand(**{"devices": 1, "on_cpu": True, "memory": GIB, **demand})
    share = choose(asked, [Node(cpus=8, memory=40 * GIB)], "here", needed)
    assert (share.slots, share.threads) == (slots, threads)


@pytest.mark.parametrize(
    ("gpus", "mask", "seen"),
    [
        (1, None, ["0", "1", "2", "3"]),
        (2, "4,5,GPU-a,GPU-b", ["4,5", "GPU-a,GPU-b"]),
        # The GPUs are filled evenly.
        (0.5, None, ["0", "1", "2", "3", "0", "1", "2", "3"]),
        (0, None, [None, None]),
    ],
)
def test_each_run_at_once_sees_its_own_gpus(
    gpus: float, mask: str | None, seen: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    if mask:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    else:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = places(Share(1, gpus, len(seen), 1, ""))
    assert [place.get("CUDA_VISIBLE_DEVICES") for place in found] == seen


@pytest.mark.parametrize(("said", "free"), [("81000\n40000\n", 40000 << 20), ("[N/A]\n", None)])
def test_free_memory_is_that_of_the_fullest_gpu_of_the_mask(
    said: str, free: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert free_gpu_memory() is None
    asked = tmp_path / "nvidia-smi"
    asked.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked.txt\nprintf '{said}'\n")
    asked.chmod(0o755)
    assert free_gpu_memory() == free
    assert "--id=2,3" in (tmp_path / "asked.txt").read_text()


def test_the_plan_tells_models_too_large_to_share_a_gpu() -> None:
    def room(gpus: float | None, parameters: int) -> str:
        return choose(Resources(gpus), EIGHT, "here", Demand(1, False, GIB, parameters)).room

    assert "packs 4 on one" in room(None, 5_000_000)
    assert "packs" not in room(None, 124_000_000)
    assert "sharing one gains nothing" in room(0.25, 124_000_000)
    assert "gains nothing" not in room(0.25, 5_000_000)


def test_the_plan_says_what_was_picked() -> None:
    text = choose(Resources(), EIGHT, "this machine", SMALL).text
    assert text == (
        "8 runs at once on this machine, each with 1 GPU and 8 CPUs; one needs about 1.0 GiB of "
        "79.0 GiB left on each GPU (resources.gpus=0.25 packs 4 on one)."
    )


@pytest.mark.parametrize(
    ("asked", "nodes", "demand", "message"),
    [
        (Resources(gpus=9), EIGHT, SMALL, "resources.gpus=9, but here has 8 GPUs"),
        (Resources(), EIGHT, Demand(9, False, GIB), "trainer.devices=9, but here has 8 GPUs"),
        (Resources(gpus=1), [Node(cpus=2)], SMALL, "leave resources.gpus out"),
        (Resources(gpus=1), EIGHT, Demand(1, True, GIB), "does not go with trainer.accelerator"),
        (Resources(gpus=0), EIGHT, SMALL, "hides the GPUs"),
        (Resources(cpus=3), [Node(cpus=2)], SMALL, "resources.cpus=3, but here has 2 CPUs"),
        (Resources(), EIGHT, Demand(1, False, 80 * GIB), "80.0 GiB, and here has 79.0 GiB"),
        (Resources(gpus=0.25), EIGHT, Demand(1, False, 30 * GIB), "type resources.gpus=0.5"),
        (Resources(cpus=1), [Node(4, memory=GIB)], SMALL, "type resources.cpus=2"),
        (Resources(), [Node(4, memory=GIB)], Demand(1, True, 2 * GIB), "a smaller model"),
    ],
)
def test_what_cannot_be_is_refused(
    asked: Resources, nodes: list[Node], demand: Demand, message: str
) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        choose(asked, nodes, "here", demand)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gpus": 0.3}, "type resources.gpus=0.25 or resources.gpus=0.3333"),
        ({"gpus": 1.5}, "type resources.gpus=1 or resources.gpus=2"),
        ({"gpus": -1}, "0 or more"),
        ({"gpus": "many"}, "resources.gpus=many is not a number"),
        ({"cpus": 0}, "type resources.cpus=1"),
        ({"at_once": 0}, "type resources.at_once=1"),
        ({"at_once": 1.5}, "a whole number of runs"),
    ],
)
def test_numbers_that_make_no_sense(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_resources({"gpus": "auto", "cpus": "auto", "at_once": "auto", **values})


def test_gpus_of_a_run_are_its_devices() -> None:
    assert devices_of(Resources(gpus=2), 1) == 2
    assert devices_of(Resources(gpus=0.25), 1) == 1
    assert devices_of(Resources(), 4) == 4
    with pytest.raises(InputError, match=r"does not go with trainer\.devices=4"):
        devices_of(Resources(gpus=2), 4)


def test_a_node_with_another_version_is_named() -> None:
    look = {"code_hash": "0" * 64, "version": "lm_experiments 9, torch 1", "node": "10.0.0.7"}
    with pytest.raises(InputError, match=r"10\.0\.0\.7 has .*experiments 9.*files 0000") as error:
        check_versions([{**look, "code_hash": None}, look])
    assert "than this machine (lm_experiments " in str(error.value)


def test_keys_of_the_launcher_that_this_program_decides() -> None:
    from omegaconf import OmegaConf

    def launcher(init: dict[str, Any], remote: dict[str, Any]) -> Any:
        return OmegaConf.create({"ray": {"init": init, "remote": remote}})

    read = read_cluster(launcher({"address": None, "num_gpus": 4}, {"memory": 1}), "h:1")
    assert (read.init, read.remote, read.address) == ({"num_gpus": 4}, {"memory": 1}, "h:1")
    with pytest.raises(InputError, match=r"type resources\.gpus"):
        read_cluster(launcher({}, {"num_gpus": 1}), None)
    with pytest.raises(InputError, match=r"ray\.address=h:1"):
        read_cluster(launcher({"address": "h:1"}, {}), None)
