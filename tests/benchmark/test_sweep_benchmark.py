"""The sweep benchmark, on models so small that only its own working is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_experiments.benchmark import sweep as measured

pytest.importorskip("ray")


@pytest.mark.slow
def test_both_sweeps_are_timed_and_the_overhead_told(
    monkeypatch: pytest.MonkeyPatch, text_file: Path
) -> None:
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
    monkeypatch.setattr(measured, "WORDS", (*measured.WORDS[:-1], *small))
    monkeypatch.setattr(measured, "STEPS", "trainer.max_steps=2")
    report = measured.sweep(1)
    assert report.timings[0].name.startswith("one after another")
    assert report.timings[1].ratio > 0
    assert "the seconds of training" in report.notes[0]
    with pytest.raises(measured.InputError, match="nonsense"):
        measured._Sweeps(text_file.parent)._type("nonsense=1")
