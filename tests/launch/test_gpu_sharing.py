"""NVIDIA's MPS for runs that share a GPU: started and stopped, by a control program made up."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lm_experiments.launch import launcher as launching
from lm_experiments.launch.gpu_sharing import CONTROL, LOGS, PIPES, gpu_sharing, how_shared
from lm_experiments.launch.launcher import Launcher
from lm_experiments.launch.resources import Resources, Share
from lm_experiments.launch.task import Policy, Task

# Writes down its arguments, what it is told, and whether it sees the folders and the mask.
FAKE = """#!{python}
import os, sys
said = sys.stdin.read().strip()
pipes = os.environ["{pipes}"]
with open("{calls}", "a") as file:
    print(sys.argv[1:], said, os.path.isdir(pipes), os.getenv("CUDA_VISIBLE_DEVICES"), file=file)
sys.exit({code})
"""
STARTED, STOPPED = "['-d']  True None", "[] quit True None"


class Control:
    """A control program on the PATH, and how it was called."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.log = folder, folder / "calls.txt"
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("CUDA_VISIBLE_DEVICES", "3")
        patch.delenv(PIPES, raising=False)
        self.install(0)

    def install(self, code: int) -> None:
        text = FAKE.format(python=sys.executable, pipes=PIPES, calls=self.log, code=code)
        (self.folder / CONTROL).write_text(text)
        (self.folder / CONTROL).chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    return Control(tmp_path, monkeypatch)


def test_it_runs_as_long_as_runs_share_a_gpu(control: Control) -> None:
    with gpu_sharing(0.25) as found:
        assert control.calls == [STARTED]
        folder = Path(found[PIPES]).parent
        assert set(found) == {PIPES, LOGS} and all(Path(path).is_dir() for path in found.values())
        # Nobody else may talk to it.
        assert folder.stat().st_mode & 0o077 == 0
    assert control.calls == [STARTED, STOPPED]
    assert not folder.exists()


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_whole_gpus_need_none(gpus: float, control: Control) -> None:
    with gpu_sharing(gpus) as found:
        assert found == {}
    assert control.calls == []


def test_one_that_the_user_has_started_is_used(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PIPES, "/tmp/theirs")
    with gpu_sharing(0.5) as found:
        assert found == {}
    assert control.calls == []


def test_one_that_does_not_start_is_told_and_the_runs_take_turns(
    control: Control, capsys: pytest.CaptureFixture[str]
) -> None:
    control.install(1)
    with gpu_sharing(0.5) as found:
        assert found == {}
    assert "did not start (exit code 1); runs on one GPU share it by time slices." in (
        capsys.readouterr().out
    )
    assert control.calls == [STARTED]


def test_the_plan_says_how_a_gpu_is_shared(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert how_shared() == "runs on one GPU share it through NVIDIA's MPS"
    monkeypatch.setenv("PATH", "/nowhere")
    assert (
        how_shared() == f"runs on one GPU share it by time slices, since {CONTROL} is not installed"
    )


def test_a_sweep_gives_it_to_its_runs_and_ends_it_also_after_a_signal(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []

    def train(tasks: Any, policy: Policy, where: list[dict[str, str]]) -> None:
        given.extend(where)
        raise SystemExit(129)

    monkeypatch.setattr(launching, "train_side_by_side", train)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    [basic] = [target for target, kind in launching.KINDS.items() if kind == launching.BASIC]
    sweep = Launcher(OmegaConf.create({"_target_": basic}), "basic", Resources(gpus=0.5), None)
    sweep.share = Share(1, 0.5, 2, 1, "")
    with pytest.raises(SystemExit):
        sweep.train([Task(Path("a"))], Policy(0, False, str))
    assert [place["CUDA_VISIBLE_DEVICES"] for place in given] == ["3", "3"]
    assert len({place[PIPES] for place in given}) == 1
    assert control.calls == [STARTED, STOPPED]
