"""The guards subject: it times a real checkpoint, and its share makes a step no faster."""

from __future__ import annotations

import pytest

from lm_experiments.benchmark import guards
from lm_experiments.model import ModelConfig


def test_a_step_with_guards_is_a_step_and_more(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ModelConfig(d_model=32, n_layers=1, n_heads=2, context_length=16, d_ff=96)
    monkeypatch.setattr(guards, "SMALL", small)
    report = guards.guards(rounds=2)
    alone, guarded = report.timings
    assert (alone.ratio, report.rounds) == (1.0, 2)
    assert guarded.ratio > 1.0
    assert "once in 500 steps" in report.notes[0]
