"""One optimizer step is exact: weighted by tokens, whatever the cut, and never by nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lm_experiments.model import IGNORE_INDEX, ModelConfig, Transformer, build_model
from lm_experiments.model.dropout import DropoutKey
from lm_experiments.registry import choose
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.module import LanguageModel
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.schedules import Constant, Cosine, Schedule

LENGTH, VOCABULARY = 8, 65

Batch = tuple[Tensor, Tensor, int]

pytestmark = pytest.mark.filterwarnings("ignore:.*(val_dataloader|bottleneck|does not have many)")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Hold torch to one thread, on which models this small are fastest."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run_config(max_steps: int = 3, schedule: Schedule | None = None) -> RunConfig:
    return RunConfig(
        model=ModelConfig(
            d_model=32,
            n_layers=2,
            n_heads=2,
            context_length=LENGTH,
            vocab_size=VOCABULARY,
            d_ff=128,
        ),
        data=BatchConfig(batch_size=4),
        tokenizer=choose("tokenizer", "bytes"),
        optimizer=AdamW(lr=0.01),
        schedule=schedule or Constant(warmup_steps=0),
        trainer=TrainerConfig(max_steps=max_steps, log_every=1, accelerator="cpu"),
        logger=WandbConfig(),
    )


class Recorder(LanguageModel):
    """The module with a list in place of its loggers."""

    def __init__(self, config: RunConfig, model: nn.Module, micro_batch_size: int) -> None:
        super().__init__(config, model, micro_batch_size, val_bytes=100)  # type: ignore[arg-type]
        self.rows: list[dict[str, float]] = []

    def write(self, row: dict[str, float], step: int) -> None:
        self.rows.append({"step": step, **row})


def module_and_rows(
    model: nn.Module, config: RunConfig, micro_batch_size: int = 2
) -> tuple[LanguageModel, list[dict[str, float]]]:
    module = Recorder(config, model, micro_batch_size)
    return module, module.rows


def loader(batches: list[Batch]) -> DataLoader[Any]:
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def fit(module: LanguageModel, batches: list[Batch], validation: list[Batch] | None = None) -> None:
    """Train on the given batches, one optimizer step each, with nothing written to disk."""
    Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=len(batches),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    ).fit(module, loader(batches), None if validation is None else loader(validation))


def batch(sequences: int = 4, ignored: float = 0.0, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (sequences, LENGTH + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < ignored] = IGNORE_INDEX
    return tokens[:, :-1], targets, int((targets != IGNORE_INDEX).sum())


def test_the_optimizer_is_that_of_the_tokens_of_a_step() -> None:
    config = dataclasses.replace(run_config(), optimizer=AdamW(beta2_tokens=4 * LENGTH))
    module, _ = module_and_rows(build_model(config.model, 0), config)
    assert module.configure_optimizers().param_groups[0]["betas"] == (0.9, 0.5)


class GivenLosses(nn.Module):
    """A model whose loss is one weight times nll values that the inputs hold."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.dropout_key = DropoutKey()

    def loss(self, inputs: Tensor, targets: Tensor, z_loss: float) -> Tensor:
        return self.scale * (inputs * (targets != IGNORE_INDEX)).sum()


@pytest.fixture
def plain_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a module go backward without a trainer."""
    monkeypatch.setattr(LanguageModel, "manual_backward", lambda self, loss: loss.backward())


@pytest.mark.usefixtures("plain_backward")
@pytest.mark.parametrize("micro_batch_size", [1, 2])
def test_micro_batches_of_one_and_three_tokens_weigh_by_their_tokens(micro_batch_size: int) -> None:
    nll = torch.tensor([[4.0, 9.0, 9.0], [1.0, 1.0, 1.0]])
    targets = torch.tensor([[0, IGNORE_INDEX, IGNORE_INDEX], [0, 0, 0]])
    model = GivenLosses()
    module, _ = module_and_rows(model, run_config(), micro_batch_size)
    loss = module._accumulate(nll, targets, 1, 4)
    assert loss.item() == 1.75
    assert not loss.requires_grad
    assert model.scale.grad is not None and model.scale.grad.item() == 1.75


@pytest.mark.usefixtures("plain_backward")
@pytest.mark.parametrize("micro_batch_size", [1, 2, 3, 7])
def test_gradients_do_not_depend_on_the_cut(micro_batch_size: int) -> None:
    inputs, targets, tokens = batch(7, ignored=0.6)
    config = run_config()
    whole, cut = (build_model(config.model, 0) for _ in range(2))
    logits = whole(inputs).flatten(0, 1)
    expected = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE_INDEX)
    expected.backward()  # type: ignore[no-untyped-call]
    module, _ = module_and_rows(cut, config, micro_batch_size)
    loss = module._accumulate(inputs, targets, 1, tokens)
    torch.testing.assert_close(loss, expected.detach())
    for wanted, found in zip(whole.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def test_a_batch_in_which_nothing_counts_leaves_every_weight_alone() -> None:
    empty = batch(ignored=1.1)
    assert empty[2] == 0
    trained, stopped = (build_model(run_config().model, 0) for _ in range(2))
    fit(module_and_rows(trained, run_config(1))[0], [batch()])
    module, rows = module_and_rows(stopped, run_config(2))
    fit(module, [batch(), empty])
    first, second = weights(trained), weights(stopped)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert rows[-1]["train/loss"] == 0
    assert rows[-1]["train/gradient_norm"] == 0


def test_training_goes_on_after_a_batch_in_which_nothing_counts() -> None:
    model = build_model(run_config().model, 0)
    module, rows = module_and_rows(model, run_config(3))
    fit(module, [batch(ignored=1.1), batch(), batch()])
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert [row["train/learning_rate"] for row in rows] == [0.0, 0.01, 0.01]
    assert rows[2]["train/loss"] < rows[1]["train/loss"]


def test_the_rate_of_step_n_is_the_schedule_at_n() -> None:
    schedule = Cosine(warmup_steps=2, min_ratio=0.1)
    model = build_model(run_config().model, 0)
    module, rows = module_and_rows(model, run_config(5, schedule))
    fit(module, [batch(seed=i) for i in range(5)])
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    expected = [0.01 * schedule.factor(step, 5) for step in (1, 2, 3, 4, 5)]
    assert [row["train/learning_rate"] for row in rows] == pytest.approx(expected)
    assert expected[1] == 0.01
    assert expected[-1] == pytest.approx(0.001)


def test_a_step_is_that_of_adamw_on_the_mean_loss_clipped() -> None:
    config = run_config(1)
    model, reference = (build_model(config.model, 0) for _ in range(2))
    module, rows = module_and_rows(model, config)
    data = batch(ignored=0.5)
    fit(module, [data])
    optimizer = config.optimizer.build(reference)
    loss = reference.loss(data[0], data[1]) / data[2]
    loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
    optimizer.step()
    for wanted, found in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    assert rows[0]["train/loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert rows[0]["train/gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert rows[0]["tokens"] == 4 * LENGTH


def test_validation_is_a_sum_over_a_count_whatever_the_batches() -> None:
    parts = [batch(3, ignored=0.8, seed=1), batch(1, seed=2), batch(2, ignored=1.1, seed=3)]
    whole = tuple(torch.cat([part[i] for part in parts]) for i in (0, 1))  # type: ignore[misc]
    found: list[dict[str, Any]] = []
    for validation in (parts, [(whole[0], whole[1], sum(part[2] for part in parts))]):
        model = build_model(run_config().model, 0)
        module, rows = module_and_rows(model, run_config(1))
        fit(module, [batch(ignored=1.1)], validation)
        found += [row for row in rows if "val/loss" in row]
    assert len(found) == 2
    model = build_model(run_config().model, 0)
    tokens = sum(part[2] for part in parts)
    expected = model.loss(whole[0], whole[1]).item() / tokens
    for row in found:
        assert row["val/loss"] == pytest.approx(expected, rel=1e-6)
        assert row["val/perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
        assert row["val/bits_per_byte"] == pytest.approx(expected * tokens / math.log(2) / 100)


def test_the_model_of_a_module_keeps_its_names() -> None:
    model: Transformer = build_model(run_config().model, 0)
    module, _ = module_and_rows(model, run_config())
    prefixed = {f"model.{name}" for name in model.state_dict()}
    assert set(module.state_dict()) == prefixed


def test_z_loss_is_in_the_training_loss_alone(plain_backward: None) -> None:
    config = run_config()
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, z_loss=0.1))
    model = build_model(config.model, 0)
    module, _ = module_and_rows(model, config)
    inputs, targets, tokens = batch(ignored=0.3)
    with torch.no_grad():
        plain = model.loss(inputs, targets).item() / tokens
        log_z = model(inputs).logsumexp(-1)[targets != IGNORE_INDEX]
    trained = module._accumulate(inputs, targets, 1, tokens).item()
    module.validation_step((inputs, targets, tokens), 0)
    assert trained == pytest.approx(plain + 0.1 * log_z.square().mean().item(), rel=1e-5)
    assert float(module.held_out_loss.compute()) == pytest.approx(plain, rel=1e-6)
