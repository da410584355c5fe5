"""The guards subject: what counts as a step, as its share of guards, and that both are real."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from lm_experiments.benchmark import guards, rounds
from lm_experiments.model import ModelConfig
from lm_experiments.training.config import TrainerConfig

# By round, the first of which warms up: the seconds of a step, of a look and of a checkpoint.
SECONDS = [(50.0, 50.0, 50.0), (2.0, 1.0, 10.0), (4.0, 1.0, 30.0)]


def test_a_step_is_charged_its_share_of_looks_and_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = [0.0]
    for number, parts in enumerate(SECONDS):
        for seconds in parts[number:] + parts[:number]:
            moments += [moments[-1] + 1000, moments[-1] + 1000 + seconds]
    clock = types.SimpleNamespace(perf_counter=iter(moments[1:]).__next__)
    saved: list[Any] = []
    small = ModelConfig(d_model=32, n_layers=1, n_heads=2, context_length=16, d_ff=96)
    monkeypatch.setattr(guards, "SMALL", small)
    monkeypatch.setattr(rounds, "time", clock)
    monkeypatch.setattr(guards, "write_whole", lambda state, path: saved.append((state, path)))

    report = guards.guards(rounds=2)
    alone, guarded = report.timings
    assert (alone.seconds, alone.ratio) == (3.0, 1.0)
    shares = [
        look / TrainerConfig.log_every + save / TrainerConfig.checkpoint_every
        for _, look, save in SECONDS[1:]
    ]
    assert guarded.seconds == pytest.approx(3.0 + sum(shares) / 2)
    assert guarded.ratio == pytest.approx(1 + (shares[0] / 2 + shares[1] / 4) / 2)
    assert f"once in {TrainerConfig.checkpoint_every} steps" in report.notes[0]

    # What is timed is a training step, and a checkpoint with weights and optimizer state.
    assert len(saved) == 3
    for state, path in saved:
        assert isinstance(path, Path)
        [optimizer] = state["optimizer_states"]
        assert len(optimizer["state"]) == len(state["state_dict"])
