"""The benchmark: how it counts, that every subject runs, and what it refuses."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness.commands import Answer
from torch import Tensor, nn

from lm_experiments.benchmark import lightning_run, peers, startup
from lm_experiments.benchmark.rounds import Measurement, measure, summarise, table
from lm_experiments.benchmark.step import PlainStep
from lm_experiments.errors import InputError
from lm_experiments.launch.endings import Ending
from lm_experiments.launch.task import Task
from lm_experiments.model import Choice, ModelConfig, build_model
from lm_experiments.registry import choose
from lm_experiments.rundir.results import DONE
from lm_experiments.training import devices
from lm_experiments.training.config import BatchConfig, RunConfig

SHAPE = ModelConfig(
    d_model=16,
    n_layers=1,
    n_heads=2,
    context_length=8,
    vocab_size=32,
    ffn_width=24,
    init=Choice("gpt2"),
)


class Copy(nn.Module):
    """Stands for a public package's model: ours under another name, with ``extra`` parameters."""

    def __init__(self, shape: ModelConfig, extra: int, scale: float) -> None:
        super().__init__()
        self.ours = build_model(shape, seed=1)
        self.scale = scale
        if extra:
            self.extra = nn.Parameter(torch.zeros(extra))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.ours(tokens) * self.scale


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(extra: int = 0, scale: float = 1.0) -> None:
        def build(package: object, shape: ModelConfig) -> tuple[nn.Module, nn.Module]:
            model = Copy(shape, extra, scale)
            return model, model

        monkeypatch.setitem(sys.modules, "stub", types.ModuleType("stub"))
        monkeypatch.setitem(peers.PEERS, "stub", build)

    return install


@pytest.fixture
def text_run(tmp_path: Path) -> RunConfig:
    text = tmp_path / "text.txt"
    text.write_text("In the beginning was the word. " * 60, encoding="utf-8")
    base = lightning_run.default_run(rounds=1, cache_dir=tmp_path / "cache")
    return dataclasses.replace(
        base,
        model=dataclasses.replace(SHAPE, vocab_size=257),
        data=BatchConfig(name="text", path=str(text), batch_size=2),
        tokenizer=choose("tokenizer", "bytes"),
    )


def test_ratio_is_the_median_of_ratios_within_rounds() -> None:
    # The second round was slow for both: only a ratio within rounds does not see it.
    reference, other = summarise({"a": [1.0, 10.0, 2.0], "b": [2.0, 20.0, 3.0]})
    assert (reference.ratio, reference.low, reference.high) == (1.0, 1.0, 1.0)
    assert (other.seconds, other.ratio) == (3.0, 2.0)
    assert other.low == pytest.approx(1.6)
    assert other.high == pytest.approx(2.0)


def test_rounds_turn_the_order() -> None:
    calls: list[str] = []

    def contestant(name: str) -> Callable[[], float]:
        def run() -> float:
            calls.append(name)
            return 1.0

        return run

    timings = measure({name: contestant(name) for name in "abc"}, rounds=2)
    assert "".join(calls) == "abcbcacab"
    assert [timing.name for timing in timings] == ["a", "b", "c"]


def test_the_warm_up_round_does_not_count() -> None:
    seconds = {"a": iter([1.0, 2.0]), "b": iter([100.0, 3.0])}
    timings = measure({name: values.__next__ for name, values in seconds.items()}, rounds=1)
    assert [(timing.seconds, timing.ratio) for timing in timings] == [(2.0, 1.0), (3.0, 1.5)]


def test_no_rounds_are_refused() -> None:
    with pytest.raises(InputError, match="--rounds 0 measures nothing; type --rounds 1"):
        measure({"a": lambda: 1.0}, rounds=0)


def test_table_names_the_reference_and_the_speed() -> None:
    timings = summarise({"ours": [2.0], "other model": [3.0]})
    text = table(Measurement("A step.", timings, rounds=1, tokens=6000, notes=["note"]))
    assert "ours           2.000     3,000  1.000  1.000 to 1.000" in text
    assert "other model    3.000     2,000  1.500  1.500 to 1.500" in text
    assert "MB" not in text and "theory" not in text
    assert "relative to ours, the median of 1 round;" in text
    assert text.endswith("note")


def test_plain_step_is_one_update_whatever_the_micro_batch() -> None:
    tokens = torch.randint(SHAPE.vocab_size, (4, 9), generator=torch.Generator().manual_seed(0))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    outcomes = []
    for size in (1, 4):
        model = build_model(SHAPE, seed=0)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        loss = PlainStep(model, model.loss, size)(inputs, targets)
        outcomes.append((loss, model.head.weight.detach()))
        assert all(not torch.equal(before[name], v) for name, v in model.state_dict().items())
    expected = build_model(SHAPE, seed=0).loss(inputs, targets) / targets.numel()
    for loss, head in outcomes:
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(head, outcomes[0][1])


@pytest.mark.parametrize(("limit", "cut"), [(1 << 30, []), (1, ["stub, micro-batches of 1"])])
def test_peers_are_timed_whole_and_in_our_micro_batches(
    limit: int, cut: list[str], stub: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub()
    monkeypatch.setitem(devices.MICRO_BATCH_BYTES, "cpu", limit)
    report = peers.compare(SHAPE, batch_size=2, rounds=1, names=["stub"])
    names = [timing.name for timing in report.timings]
    assert names == ["lm_experiments", "stub, whole batch", *cut]
    assert report.tokens == 16
    parameters = sum(p.numel() for p in build_model(SHAPE, seed=0).parameters())
    assert f"parameters: {parameters:,} in each model" in report.notes[0]
    assert report.notes[1] == (
        "not installed: litgpt, transformers, x_transformers; type pip install -e '.[peers]'"
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"extra": 3}, "stub, whole batch has .* parameters, not our"),
        ({"scale": 100.0}, "stub, whole batch starts at a loss of .*, not near ln V = 3.466"),
        ({"scale": float("nan")}, "starts at a loss of nan"),
    ],
)
def test_a_peer_that_is_another_model_is_refused(
    stub: Callable[..., None], fault: dict[str, float], message: str
) -> None:
    stub(**fault)
    with pytest.raises(peers.InputError, match=message):
        peers.compare(SHAPE, batch_size=2, rounds=1, names=["stub"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["litgpt", "transformers", "x_transformers"])
def test_public_models_have_our_shape(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    report = peers.compare(SHAPE, batch_size=2, rounds=1, names=[name])
    assert len(report.timings) == 2


def test_lightning_and_bare_steps_are_the_same_training(
    text_run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare: list[PlainStep] = []

    class Kept(PlainStep):
        def __post_init__(self) -> None:
            super().__post_init__()
            bare.append(self)

    monkeypatch.setattr(lightning_run, "PlainStep", Kept)
    # With no warm-up the schedule is constant, as the rate of the bare loop is.
    schedule = dataclasses.replace(text_run.schedule, warmup_steps=0)
    config = dataclasses.replace(text_run, schedule=schedule)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    report = lightning_run.compare(config, run_dir)
    assert [timing.name for timing in report.timings] == ["bare loop", "Lightning run"]
    assert (report.rounds, report.tokens) == (1, 10 * 2 * 8)
    [checkpoint] = (run_dir / "checkpoints").glob("*.ckpt")
    trained = torch.load(checkpoint, weights_only=True)["state_dict"]
    for name, value in bare[0].model.state_dict().items():
        assert torch.equal(trained[f"model.{name}"], value)


def test_startup_ends_where_the_first_row_is_on_disk(
    text_run: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]

    def train(task: Task) -> Ending:
        now[0] += 7.0
        (task.directory / "metrics.jsonl").write_text('{"step": 1}\n')
        # The watcher looks every few milliseconds; what follows does not count.
        time.sleep(0.5)
        now[0] += 50.0
        return Ending(DONE)

    clock = types.SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(startup, "time", clock)
    monkeypatch.setattr(startup, "train", train)
    run = startup.one_more_run(text_run, tmp_path / "runs")
    assert [run(), run()] == [7.0, 7.0]


@pytest.mark.slow
def test_startup_times_a_real_run(text_run: RunConfig, tmp_path: Path) -> None:
    trainer = dataclasses.replace(text_run.trainer, max_steps=1)
    run = startup.one_more_run(dataclasses.replace(text_run, trainer=trainer), tmp_path / "runs")
    begun = time.perf_counter()
    seconds = run()
    # The run validates and saves after its first row.
    assert seconds < time.perf_counter() - begun
    assert (tmp_path / "runs" / "run-0" / "result.json").exists()


@pytest.mark.slow
def test_startup_tells_of_a_run_that_failed(text_run: RunConfig, tmp_path: Path) -> None:
    data = dataclasses.replace(text_run.data, path=str(tmp_path / "gone.txt"))
    run = startup.one_more_run(dataclasses.replace(text_run, data=data), tmp_path / "runs")
    with pytest.raises(RuntimeError, match=r"(?s)ended with exit code 1:.*gone\.txt"):
        run()


def test_command_prints_the_table_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Answer]
) -> None:
    def fake(rounds: int) -> Measurement:
        return Measurement("A step.", summarise({"ours": [1.0] * rounds}), rounds)

    monkeypatch.setattr(peers, "peers", fake)
    file = tmp_path / "numbers.json"
    answer = command("benchmark", "peers", "--rounds", 3, "--json", file)
    assert answer.code == 0
    assert "median of 3 rounds" in answer.out
    numbers = json.loads(file.read_text(encoding="utf-8"))
    assert numbers["subject"] == "peers"
    assert numbers["timings"][0]["ratio"] == 1.0
    assert numbers["machine"]["threads"] == torch.get_num_threads()


def test_command_refuses_in_one_sentence(
    command: Callable[..., Answer], refused: Callable[..., str]
) -> None:
    error = refused("benchmark", "peers", "--rounds", 0)
    assert error == "error: --rounds 0 measures nothing; type --rounds 1 or more.\n"
    assert "choose from peers, compiled, lightning" in command("benchmark", "piers").err.replace(
        "'", ""
    )
