"""One run, from the command line to its directory."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from harness.processes import slow
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

from lm_experiments.evaluation import EncodedText, score
from lm_experiments.rundir.diagnostics import read_diagnostics
from lm_experiments.rundir.identity import read_values
from lm_experiments.rundir.metrics import read_rows
from lm_experiments.study.open_run import open_run
from lm_experiments.training import fit
from lm_experiments.training.checkpoints import load_model, newest_checkpoint
from lm_experiments.training.config import load_config, plain_values
from lm_experiments.training.progress import RunProgress
from lm_experiments.training.signals import StopSignals

MEDDLING = '''
import os, signal
import torch
from lm_experiments.model import register
from lm_experiments.model.norms import RMSNorm, NormOptions

@register("norm", "meddling", NormOptions)
class Meddling(RMSNorm):
    """RMSNorm that does what the environment says, at the forward pass it says."""
    calls = 0
    def forward(self, x):
        if torch.is_grad_enabled():
            Meddling.calls += 1
            if Meddling.calls == int(os.environ.get("MEDDLE_AT", 0)):
                what = os.environ["MEDDLE"]
                if what == "nan":
                    return super().forward(x) * float("nan")
                os.kill(os.getpid(), getattr(signal, what))
        return super().forward(x)
'''
TESTED = ("test_loss", "test_tokens", "test_bits_per_byte")
# Pre-norm with one layer calls three norms a forward pass, and the batch is four micro-batches.
CALLS_PER_STEP = 12


def only_run(name: str) -> Path:
    [run] = [path for path in Path("runs", name).iterdir() if path.is_dir()]
    return run


def read_result(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((only_run(name) / "result.json").read_text())
    return result


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (only_run(name) / "metrics.jsonl").open()]


def weights(name: str) -> dict[str, torch.Tensor]:
    path = newest_checkpoint(only_run(name))
    assert path is not None
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return state


@pytest.fixture
def meddle(train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    Path("meddling.py").write_text(MEDDLING)

    def call(name: str, what: str = "", step: int = 0, *more: str) -> Any:
        monkeypatch.setenv("MEDDLE", what)
        monkeypatch.setenv("MEDDLE_AT", str((step - 1) * CALLS_PER_STEP + 2 if step else 0))
        return train(
            "-m",
            "norm=meddling",
            "code_paths=[meddling.py]",
            f"name={name}",
            "seed=0",
            "trainer.micro_batch_size=4",
            "model.dropout=0.1",
            "trainer.max_steps=12",
            "trainer.checkpoint_every=4",
            "trainer.val_every=5",
            *more,
        )

    return call


def test_a_run_leaves_what_the_design_says(train: Callable[..., Any]) -> None:
    answer = train("name=one", "trainer.max_steps=5", "trainer.val_every=2")
    assert answer.code == 0, answer.err
    run = only_run("one")
    result = read_result("one")
    wanted = "status outcome arm seed val_loss val_tokens bits_per_byte perplexity initial_loss"
    wanted += " steps tokens parameters flops_per_token train_flops seconds tokens_per_second"
    wanted += " peak_memory_bytes learning_rate config_hash data_hash commit dirty versions error"
    assert not set(wanted.split()) - set(result)
    assert (result["status"], result["outcome"], result["steps"]) == ("done", "ok", 5)
    assert result["initial_loss"] == pytest.approx(math.log(257), abs=0.6)
    assert result["val_loss"] < result["initial_loss"]
    assert result["perplexity"] == pytest.approx(math.exp(result["val_loss"]))
    assert result["train_flops"] == result["flops_per_token"] * result["tokens"]
    assert run.name.endswith(result["config_hash"][:8])
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config == plain_values(load_config(run))
    validated = [row["step"] for row in rows("one") if "val/loss" in row]
    assert validated == [2, 4, 5]
    assert rows("one")[-1]["val/loss"] == result["val_loss"]
    assert [row["step"] for row in rows("one") if "train/loss" in row] == [1, 2, 3, 4, 5]


def test_the_test_text_is_measured_once_after_training(train: Callable[..., Any]) -> None:
    words = ("trainer.max_steps=4", "trainer.val_every=2", "data.eval_batch_size=3")
    assert train("name=with", *words, "data.test_fraction=0.2").code == 0
    result, run = read_result("with"), open_run(only_run("with"))
    assert run.data.test is not None
    text = EncodedText.of(run.data.test)
    measured = score(run.model(), text, run.config.model.context_length)
    assert result["test_loss"] == pytest.approx(measured.loss, rel=1e-5)
    assert result["test_bits_per_byte"] == pytest.approx(measured.bits_per_byte, rel=1e-5)
    assert result["test_tokens"] == measured.tokens == len(run.data.test.tokens) - 1
    assert result["test_loss"] != result["val_loss"]
    tested = [row for row in rows("with") if "test/loss" in row]
    assert [(row["step"], row["test/loss"]) for row in tested] == [(4, result["test_loss"])]
    (only_run("with") / "result.json").unlink()
    assert train("name=with", *words, "data.test_fraction=0.2").code == 0
    assert read_result("with")["test_loss"] == result["test_loss"]
    assert [row for row in rows("with") if "test/loss" in row] == tested


def test_without_a_test_text_nothing_is_measured_and_the_name_stays(
    train: Callable[..., Any],
) -> None:
    for number, words in enumerate(((), ("data.test_fraction=0",), ("data.test_fraction=0.1",))):
        assert train(f"name=n{number}", "trainer.max_steps=2", *words).code == 0
    assert only_run("n0").name == only_run("n1").name != only_run("n2").name
    without, with_test = read_result("n0"), read_result("n2")
    assert [without[key] for key in TESTED] == [None] * 3
    assert not [row for row in rows("n0") if "test/loss" in row]
    assert with_test["val_tokens"] == without["val_tokens"]
    assert with_test["data_hash"] != without["data_hash"]
    # What it changes is the data, so runs from before there was this key keep their names.
    assert "data.test_fraction" not in read_values(only_run("n2"))


def test_the_checkpoint_holds_plain_values_and_plain_names(train: Callable[..., Any]) -> None:
    assert train("name=one").code == 0
    run = only_run("one")
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000003.ckpt"]
    model = load_model(run, load_config(run))
    assert set(weights("one")) == {f"model.{key}" for key in model.state_dict()}


def test_validation_does_not_depend_on_its_batches(train: Callable[..., Any]) -> None:
    losses = []
    for size in (1, 3, 8):
        assert train(f"name=b{size}", f"data.eval_batch_size={size}").code == 0
        result = read_result(f"b{size}")
        losses.append(result["val_loss"])
        assert result["val_tokens"] == read_result("b1")["val_tokens"]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-6)


def test_micro_batches_do_not_change_the_run(train: Callable[..., Any]) -> None:
    for size in (1, 8):
        assert train(f"name=m{size}", f"trainer.micro_batch_size={size}").code == 0
    assert read_result("m1")["val_loss"] == pytest.approx(read_result("m8")["val_loss"], abs=1e-5)


@pytest.mark.parametrize("step", [5, *map(slow, (6, 8))])
@pytest.mark.parametrize("signal_name", [slow("SIGTERM"), "SIGKILL"])
def test_an_interrupted_run_continues_to_the_same_weights(
    signal_name: str, step: int, meddle: Callable[..., Any]
) -> None:
    more = ("data.test_fraction=0.1", "diagnostics.every=2", "samples.every=3")
    assert meddle("whole", "", 0, *more).code == 0
    cut = meddle("cut", signal_name, step, *more)
    assert cut.code == (143 if signal_name == "SIGTERM" else 1)
    status = {"SIGTERM": "interrupted", "SIGKILL": "failed"}[signal_name]
    assert read_result("cut")["status"] == status
    assert read_result("cut")["test_loss"] is None
    answer = meddle("cut", "", 0, *more)
    assert answer.code == 0, answer.out + answer.err
    for name, tensor in weights("whole").items():
        assert torch.equal(tensor, weights("cut")[name]), name
    deterministic = [
        {key: value for key, value in row.items() if key != "train/tokens_per_second"}
        for row in rows("whole")
    ]
    assert deterministic == [
        {key: value for key, value in row.items() if key != "train/tokens_per_second"}
        for row in rows("cut")
    ]
    assert read_diagnostics(only_run("cut")) == read_diagnostics(only_run("whole"))
    assert [row["step"] for row in read_diagnostics(only_run("cut"))] == [1, 2, 4, 6, 8, 10, 12]
    whole, resumed = (read_rows(only_run(name) / "samples.jsonl") for name in ("whole", "cut"))
    assert resumed == whole
    assert [row["step"] for row in resumed] == [3, 6, 9, 12]
    for key in ("initial_loss", "test_loss"):
        assert read_result("cut")[key] == read_result("whole")[key]


def test_bad_numbers_end_a_run_as_an_outcome(meddle: Callable[..., Any]) -> None:
    answer = meddle("bad", "nan", 6)
    assert answer.code == 0
    result = read_result("bad")
    assert (result["status"], result["outcome"]) == ("done", "non-finite")
    assert result["steps"] == 6
    assert "non-finite" in answer.out
    assert not (only_run("bad") / "documents.npz").exists()
    assert newest_checkpoint(only_run("bad")).name == "step-00000004.ckpt"  # type: ignore[union-attr]


def test_each_run_of_a_sweep_is_one_wandb_run(train: Callable[..., Any]) -> None:
    os.environ.pop("WANDB_API_KEY", None)
    answer = train(
        "-m", "seed=0,1,2", "logger=wandb", "logger.mode=offline", "logger.tags=[t]", "name=w"
    )
    assert answer.code == 0, answer.err
    runs = [path.parent for path in Path("runs/w").glob("*/config.yaml")]
    ids = {(run / "wandb_id").read_text().split()[0] for run in runs}
    assert len(ids) == 3
    kept = [path for run in runs for path in run.glob("wandb/offline-run-*/run-*.wandb")]
    assert {path.stem.removeprefix("run-") for path in kept} == ids
    assert answer.out.count("wandb sync") == 1


def test_only_our_handler_hears_sigterm_while_a_run_is_trained(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lightning's would make two devices broadcast in the middle of another collective."""
    heard: list[Any] = []
    show = RunProgress.on_validation_end

    def note(self: RunProgress, *args: Any) -> None:
        heard.append(getattr(signal.getsignal(signal.SIGTERM), "__self__", None))
        show(self, *args)

    monkeypatch.setattr(RunProgress, "on_validation_end", note)
    assert train("name=heard").code == 0
    assert heard and all(isinstance(owner, StopSignals) for owner in heard)


def test_the_collector_leaves_the_set_up_alone_while_training() -> None:
    with pytest.raises(ZeroDivisionError), fit._set_up_not_collected():
        assert gc.get_freeze_count() > 1000
        raise ZeroDivisionError
    assert gc.get_freeze_count() == 0


def test_what_lightning_is_kept_from_doing_at_each_step_is_still_called_so() -> None:
    assert callable(_TrainingEpochLoop._broadcast_sigterm_tensor)
