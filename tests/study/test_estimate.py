"""What the plan expects of runs: every part of a run counts, and timing is kept short."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.commands import Answer

from lm_experiments.study import estimate
from lm_experiments.study.estimate import Cost, Estimates
from lm_experiments.study.plan import PlannedRun
from lm_experiments.training.config import load_config

# A token costs a second forwards and backwards, an update ten, a loss half a second.
COST = Cost(gradient=1.0, update=10.0, loss=0.5, flops=100, worked=4.0, waited=4.0)
VALIDATION, TEST = 40, 8


@pytest.fixture
def run(run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> PlannedRun:
    """A run of 3 steps of 16 sequences of 16 tokens, whose model costs `COST`."""
    text = SimpleNamespace(positions=VALIDATION)
    corpus = SimpleNamespace(val=text, test=None)
    monkeypatch.setattr(estimate, "corpus_of", lambda config: corpus)
    monkeypatch.setattr(estimate, "_timed", lambda run: replace(COST, flops=flops_of(run)))
    config = load_config(run_of("plan=false"))
    ledger: Any = SimpleNamespace(training_flops_per_token=100)
    return PlannedRun(config, Path("x"), "h", "d", {}, ledger, None)


def flops_of(run: PlannedRun) -> int:
    return run.ledger.training_flops_per_token


def with_trainer(run: PlannedRun, **values: Any) -> PlannedRun:
    trainer = replace(run.config.trainer, **values)
    return replace(run, config=replace(run.config, trainer=trainer))


def larger(run: PlannedRun, times: int) -> PlannedRun:
    """Another model, with so many times the operations."""
    model = replace(run.config.model, n_layers=run.config.model.n_layers * times)
    ledger: Any = SimpleNamespace(training_flops_per_token=100 * times)
    return replace(run, config=replace(run.config, model=model), ledger=ledger)


def seconds(*runs: PlannedRun) -> list[float]:
    estimates = Estimates()
    estimates.time(runs)
    found = [estimates.seconds(run) for run in runs]
    assert None not in found
    return [value for value in found if value is not None]


def test_start_steps_updates_validation_and_compiling_count(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, loop = estimate.START_SECONDS["cpu"], 3 * estimate.LOOP_SECONDS
    [whole] = seconds(run)
    assert whole == pytest.approx(3 * (256 + 10) + 0.5 * VALIDATION + start + loop)
    [often] = seconds(with_trainer(run, val_every=1))
    assert often - whole == pytest.approx(2 * 0.5 * VALIDATION)
    [compiled] = seconds(replace(run, config=replace(run.config, compile=True)))
    assert compiled - whole == pytest.approx(estimate.COMPILE_SECONDS)
    held_out = SimpleNamespace(positions=TEST)
    corpus = SimpleNamespace(val=SimpleNamespace(positions=VALIDATION), test=held_out)
    monkeypatch.setattr(estimate, "corpus_of", lambda config: corpus)
    assert seconds(run)[0] - whole == pytest.approx(0.5 * TEST)


def test_a_busy_machine_is_slow_at_everything(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    [whole] = seconds(run)
    monkeypatch.setattr(estimate, "_timed", lambda run: replace(COST, waited=12.0))
    estimates = Estimates()
    estimates.time([run])
    assert estimates.pace == 3.0
    assert estimates.first_start == pytest.approx(1.5 * estimate.FIRST_START_SECONDS)
    told = estimates.seconds(run)
    assert told is not None and 2.9 * whole < told < 3 * whole


def test_each_model_is_timed_once_while_that_is_cheap_and_others_go_by_their_flops(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []

    def timing(run: PlannedRun) -> Cost:
        timed.append(flops_of(run))
        return replace(COST, flops=flops_of(run), gradient=flops_of(run) / 50)

    monkeypatch.setattr(estimate, "_timed", timing)
    runs = [run, replace(run, config=replace(run.config, seed=5)), larger(run, 2), larger(run, 4)]
    found = seconds(*runs)
    assert timed == [100, 200, 400]
    assert found[0] == found[1] < found[2] < found[3]
    # Nothing but the first model may be timed.
    timed.clear()
    monkeypatch.setattr(estimate, "TIMING_SHARE", 0.0)
    scaled = seconds(*runs)
    assert timed == [100]
    extra = estimate.START_SECONDS["cpu"] + 3 * estimate.LOOP_SECONDS
    assert scaled[3] - extra == pytest.approx(4 * (scaled[0] - extra))


def test_a_model_that_cannot_be_timed_hides_no_other(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timing(run: PlannedRun) -> Cost:
        if flops_of(run) == 100:
            raise RuntimeError("broken")
        return replace(COST, flops=flops_of(run))

    monkeypatch.setattr(estimate, "_timed", timing)
    assert len(seconds(run, larger(run, 2))) == 2
    estimates = Estimates()
    estimates.time([run])
    assert estimates.seconds(run) is None


def test_real_models_are_timed(run_of: Callable[..., Path]) -> None:
    config = load_config(run_of("plan=false"))
    ledger: Any = SimpleNamespace(training_flops_per_token=100)
    cost = estimate._timed(PlannedRun(config, Path("x"), "h", "d", {}, ledger, None))
    assert min(cost.gradient, cost.update, cost.loss, cost.waited) > 0
    # Losses alone are a part of gradients.
    assert cost.loss < cost.gradient


PAIR: Sequence[str] = ("-m", "norm=rmsnorm,none", "seed=0,1")


def test_the_plan_alone_is_printed_and_says_what_is_used(train: Callable[..., Answer]) -> None:
    answer = train(*PAIR, "plan=true", "trainer.threads=1", "resources.at_once=1")
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].startswith("arm ")
    assert "one run after another; on cpu with 1 thread, in 32-true." in lines
    assert lines[-1].startswith("4 runs: 2 arms, seeds 0, 1; 0 done already, 4 to train, in about ")
    assert not Path("runs").exists()
    single = train("plan=true", "trainer.threads=2", "trainer.precision=bf16-mixed")
    assert (single.code, single.err) == (0, "")
    assert "one run; on cpu with 2 threads, in bf16-mixed." in single.out


def test_a_resumed_sweep_is_planned_by_what_its_runs_took(
    train: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(*PAIR, "name=it").code == 0
    # What is timed now says of every run that it takes a thousand times as long.
    monkeypatch.setattr(Estimates, "seconds", lambda self, run: 10_000.0)
    answer = train(*PAIR[:2], "seed=0,1,2", "name=it", "plan=true")
    told = answer.out.splitlines()[-1]
    assert "4 done already, 2 to train, in about" in told
    assert re.search(r"in about [\d.]+ s[,.]", told)


def test_what_was_expected_is_kept_with_each_planned_run(train: Callable[..., Answer]) -> None:
    assert train(*PAIR, "name=it").code == 0
    rows = json.loads(Path("runs/it/sweep.json").read_text())["runs"]
    first = [row["seconds"] for row in rows]
    assert all(value > 0 for value in first)
    assert train(*PAIR, "name=it").code == 0
    again = json.loads(Path("runs/it/sweep.json").read_text())["runs"]
    assert [row["seconds"] for row in again] == first


def test_a_model_that_does_not_fit_the_memory_is_not_timed(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "free_memory", lambda: 1 << 20)
    estimates = Estimates()
    estimates.time([run])
    assert estimates.seconds(run) is None
