"""The GPU checks: what they write, and that one which fails does not stop the others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from lm_experiments.benchmark import attention, determinism, gpu_check
from lm_experiments.benchmark.gpu_check import Check
from lm_experiments.cli.benchmark import SUBJECTS
from lm_experiments.model import ModelConfig

TINY = ModelConfig(d_model=16, n_layers=1, n_heads=2, context_length=8, vocab_size=32, d_ff=64)


def test_every_check_is_a_subject_and_they_fit_the_limit() -> None:
    assert {check.subject for check in gpu_check.CHECKS} <= SUBJECTS.keys()


def test_a_check_that_fails_or_hangs_is_told_of_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environments: list[dict[str, str]] = []

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        environments.append(how["env"])
        subject, numbers = command[4], Path(command[-1])
        if subject == "hangs":
            raise subprocess.TimeoutExpired(command, how["timeout"])
        if subject == "fails":
            return subprocess.CompletedProcess(command, 2, "", "error: why")
        numbers.write_text('{"rounds": 1}')
        return subprocess.CompletedProcess(command, 0, "a table", "")

    monkeypatch.setattr(gpu_check.subprocess, "run", run)
    checks = [Check(name, 3, 5.0) for name in ("fails", "hangs", "works")]
    found = gpu_check.run(checks, tmp_path / "out", on_cpu=True)
    assert [check["measured"] for check in found] == [False, False, True]
    page = (tmp_path / "out" / gpu_check.PAGE).read_text()
    assert "error: why" in page and "longer than the 20 s" in page and "a table" in page
    numbers = json.loads((tmp_path / "out" / gpu_check.NUMBERS).read_text())
    assert numbers["checks"][2]["numbers"] == {"rounds": 1}
    assert all(each["CUDA_VISIBLE_DEVICES"] == "" for each in environments)


def test_without_a_gpu_it_says_how_to_rehearse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert capsys.readouterr().err == (
        "error: there is no GPU here; type --cpu to rehearse on the CPU.\n"
    )


def test_attention_kernels_are_timed_and_those_missing_named() -> None:
    report = attention.compare((1, 2, 16, 16), 1)
    names = [timing.name for timing in report.timings]
    assert "plain" in names
    assert len(report.notes) == len(attention.KERNELS)
    missing = [note for note in report.notes if "not here" in note]
    assert len(missing) == len(attention.KERNELS) - len(names)


def test_trainings_are_compared_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    report = determinism.compare(TINY, 2, 1)
    assert [timing.name for timing in report.timings] == ["as it comes", "deterministic"]
    assert all(note.endswith("the same bits") for note in report.notes)
    assert not torch.are_deterministic_algorithms_enabled()
    seeds = iter(range(9))
    build = determinism.build_model
    monkeypatch.setattr(determinism, "build_model", lambda shape, seed: build(shape, next(seeds)))
    assert all(note.endswith("other bits") for note in determinism.compare(TINY, 2, 1).notes)
