"""The packing benchmark, on models so small that only its own working is seen."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path

import pytest

from lm_experiments.benchmark import packing as measured
from lm_experiments.launch.memory import cores
from lm_experiments.rundir.results import DONE, Result, write_result


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the benchmark's clock shows, to be advanced."""
    now = [0.0]
    monkeypatch.setattr(measured, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    return now


@pytest.fixture
def typed(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words of each sweep, which takes 30 s, or side by side 12 s, of twelve runs of 2 s."""
    found: list[tuple[str, ...]] = []

    def type_sweep(self: measured._Sweeps, *words: str) -> None:
        found.append(words)
        clock[0] += 12.0 if measured.BESIDE in words else 30.0
        for number in range(measured.RUNS):
            run = self.folder / "runs" / words[-1].removeprefix("name=") / f"run{number}"
            run.mkdir(parents=True)
            write_result(run, Result(DONE, "arm", number, seconds=2.0))

    monkeypatch.setattr(measured._Sweeps, "_type", type_sweep)
    return found


def test_the_ratio_is_that_of_whole_sweeps_and_the_overhead_what_is_not_training(
    typed: list[tuple[str, ...]],
) -> None:
    report = measured.packing(2)
    alone, beside = report.timings
    assert (alone.seconds, beside.seconds, beside.ratio) == (30.0, 12.0, 0.4)
    assert "the fastest sweep: 12.0 s, of which" in report.notes[0]
    assert f"divided by {cores()} cores is {12 * 2.0 / cores():.1f} s" in report.notes[0]
    # A round to warm up and two more, whose order turns; each sweep trains anew.
    order = [measured.BESIDE in words for words in typed]
    assert order == [False, True, True, False, False, True]
    assert len({words[-1] for words in typed}) == len(typed)


def test_a_sweep_that_lost_runs_is_no_measurement(
    typed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    type_sweep: Callable[..., None] = measured._Sweeps._type

    def lose_one(self: measured._Sweeps, *words: str) -> None:
        type_sweep(self, *words)
        next(self.folder.glob(f"runs/sweep-{len(typed) - 1}/*/result.json")).unlink()

    monkeypatch.setattr(measured._Sweeps, "_type", lose_one)
    with pytest.raises(AssertionError, match="11 of 12 runs ended"):
        measured.packing(1)


@pytest.mark.slow
def test_both_sweeps_train_all_their_runs(monkeypatch: pytest.MonkeyPatch, text_file: Path) -> None:
    small = (
        "model.d_model=16",
        "model.n_layers=1",
        "model.n_heads=2",
        "model.context_length=16",
        "model.d_ff=32",
        "match_tolerance=0.1",
        "tokenizer=bytes",
        "data=text",
        f"data.path={text_file}",
        "data.val_fraction=0.1",
    )
    counted: list[float] = []
    runs = measured._Sweeps._training_seconds

    def count(self: measured._Sweeps, name: str) -> float:
        counted.append(runs(self, name))
        return counted[-1]

    monkeypatch.setattr(measured, "WORDS", (*measured.WORDS[:-1], *small))
    monkeypatch.setattr(measured, "STEPS", "trainer.max_steps=2")
    monkeypatch.setattr(measured._Sweeps, "_training_seconds", count)
    report = measured.packing(1)
    alone, beside = report.timings
    assert alone.name.startswith("one after another")
    # All sweeps, those of the round to warm up too, had twelve results.
    assert len(counted) == 4
    assert all(seconds / cores() < beside.seconds * 3 for seconds in counted[1:3])
    with pytest.raises(measured.InputError, match="nonsense"):
        measured._Sweeps(text_file.parent)._type("nonsense=1")
