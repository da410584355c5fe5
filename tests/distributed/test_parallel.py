"""Several processes take one exact step, and evaluate exactly; nothing is lost between formats."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.pytorch import Callback, Trainer
from together import together
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lm_experiments.data import IGNORE_INDEX, EvaluationBatches
from lm_experiments.model import ModelConfig, build_model
from lm_experiments.model.dropout import DropoutKey
from lm_experiments.registry import choose
from lm_experiments.training.batches import EvenBatches
from lm_experiments.training.callbacks import WholeFiles
from lm_experiments.training.checkpoints import (
    CheckpointError,
    files_of,
    open_checkpoint,
    write_shard,
)
from lm_experiments.training.config import BatchConfig, RunConfig, TrainerConfig
from lm_experiments.training.logger_config import NoLogger
from lm_experiments.training.module import LanguageModel
from lm_experiments.training.optimizers import AdamW
from lm_experiments.training.parallel import STRATEGIES, environment_of
from lm_experiments.training.schedules import Constant
from lm_experiments.training.shards import SUFFIX, whole
from lm_experiments.training.world import World, world_of_environment

MODEL = ModelConfig(d_model=16, n_layers=2, n_heads=2, context_length=4, vocab_size=11, d_ff=24)


def run_config(**optimizer: Any) -> RunConfig:
    return RunConfig(
        model=MODEL,
        data=BatchConfig(batch_size=4),
        tokenizer=choose("tokenizer", "bytes"),
        optimizer=AdamW(**optimizer),
        schedule=Constant(warmup_steps=0),
        trainer=TrainerConfig(max_steps=8, log_every=1, accelerator="cpu"),
        logger=NoLogger(),
    )


class GivenLosses(nn.Module):
    """A model whose loss is one weight times nll values that the inputs hold."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.dropout_key = DropoutKey()

    def loss(self, inputs: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
        return (self.scale * (inputs * (targets != IGNORE_INDEX)).sum()).squeeze()


class Recorder(LanguageModel):
    """The module with a list in place of its loggers."""

    def __init__(self, model: Any, world: World, **optimizer: Any) -> None:
        super().__init__(run_config(**optimizer), model, 1, val_bytes=100, world=world)
        self.rows: list[dict[str, float]] = []

    def write(self, row: dict[str, float], step: int) -> None:
        self.rows.append({"step": step, **row})


def trainer(world: World, strategy: str, *callbacks: Callback, steps: int = 1) -> Trainer:
    several = STRATEGIES.get(strategy)
    return Trainer(
        accelerator="cpu",
        devices=world.size,
        strategy=several() if several else "auto",
        plugins=[WholeFiles(), environment_of(world.size)],
        callbacks=list(callbacks),
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
    )


def counted(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, int]:
    return inputs, targets, int((targets != IGNORE_INDEX).sum())


def one_uneven_step(parts: list[tuple[Tensor, Tensor]]) -> tuple[float, float, float]:
    """Take a step on one of two parts; return loss, gradient norm and the new weight."""
    world = world_of_environment()
    module = Recorder(GivenLosses(), world, lr=0.1, weight_decay=0.0, clip_norm=0.0)
    batches = DataLoader([counted(*parts[world.rank])], batch_size=None)  # type: ignore[arg-type]
    trainer(world, "ddp").fit(module, batches)
    row = module.rows[0]
    scale: Any = module.model.scale
    return row["train/loss"], row["train/gradient_norm"], scale.item()


def test_parts_of_one_and_three_tokens_weigh_by_their_tokens() -> None:
    """A mean over the processes would give a loss and a gradient of 2.5."""
    a = torch.tensor([[4.0, 9.0, 9.0]]), torch.tensor([[0, IGNORE_INDEX, IGNORE_INDEX]])
    b = torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[0, 0, 0]])
    for loss, norm, scale in together(one_uneven_step, 2, [a, b]):
        assert (loss, norm) == (1.75, 1.75)
        assert scale == pytest.approx(0.9)


def evaluation(values: list[float]) -> tuple[float, int]:
    """Return loss and count of windows with one token each, shared by the processes."""
    world = world_of_environment()
    parts = [
        EvaluationBatches(range(len(values) + 1), 1, 1, r, world.size) for r in (world.rank, 0)
    ]
    nll = torch.tensor(values)

    class Losses(GivenLosses):
        def losses(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            each = nll[inputs] * (targets != IGNORE_INDEX)
            return each, each.sum()

    module = Recorder(Losses(), world)
    loader = DataLoader(EvenBatches(parts[0], len(parts[1])), batch_size=None, collate_fn=None)
    module.on_before_batch_transfer = (  # type: ignore[method-assign]
        lambda batch, dataloader_idx: counted(*batch)
    )
    validating = trainer(world, "ddp")
    validating.limit_val_batches = 1.0
    validating.validate(module, loader, verbose=False)
    return module.rows[0]["val/loss"], module.history.validation_tokens


@pytest.mark.parametrize(
    ("values", "mean"), [([1.0, 1.0, 1.0, 1.0, 6.0], 2.0), ([3.0], 3.0)], ids=["five", "one"]
)
def test_evaluation_counts_every_window_once(values: list[float], mean: float) -> None:
    """Five windows for two processes, of which neither repeats one; of one window, one has none."""
    assert together(evaluation, 2, values) == [(mean, len(values))] * 2


class SaveAtStart(Callback):
    """Saves what a run has just taken up."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        trainer.save_checkpoint(self.path, weights_only=False)


def train_and_save(
    strategy: str, saved: Path | None, start: Path, end: Path, steps: int, seed: int = 0
) -> None:
    world = world_of_environment()
    torch.manual_seed(1)
    windows = torch.randint(MODEL.vocab_size, (8, 4, 5))
    own = windows[:, world.rank :: world.size]
    batches = [counted(w[:, :-1], w[:, 1:]) for w in own]
    module = Recorder(build_model(MODEL, seed), world, lr=0.01)
    one = trainer(world, strategy, SaveAtStart(start), steps=steps)
    one.fit(module, DataLoader(batches, batch_size=None), ckpt_path=saved, weights_only=True)  # type: ignore[arg-type]
    one.save_checkpoint(end, weights_only=False)


def written(path: Path) -> Path:
    """Return what was written for this path: this file, or a folder of shards."""
    return path if path.exists() else path.with_suffix(SUFFIX)


def saved_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint by name; they must be plain and whole."""
    saved = whole(open_checkpoint(written(path)))
    state = {f"optimizer {k} {n}": t for k, e in _entries(saved) for n, t in e.items()}
    state.update(saved["state_dict"])
    assert all(type(value) is Tensor for value in state.values())
    return state


def _entries(saved: dict[str, Any]) -> Any:
    return saved["optimizer_states"][0]["state"].items()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_checkpoint_is_taken_up_by_any_number_of_devices_bit_for_bit(
    strategy: str, tmp_path: Path
) -> None:
    """From one process to two, and back; names and shapes are those of one process."""
    one, two, back = tmp_path / "one", tmp_path / "two", tmp_path / "back"
    ignored = tmp_path / "ignored"
    together(train_and_save, 1, "single", None, ignored, one, 2)
    together(train_and_save, 2, strategy, one, tmp_path / "taken", two, 4, 1)
    assert written(two).is_dir() == (strategy == "fsdp")
    together(train_and_save, 1, "single", written(two), back, ignored, 6, 2)
    for saved, taken in ((one, tmp_path / "taken"), (two, back)):
        before, after = saved_state(saved), saved_state(taken)
        assert before.keys() == after.keys()
        for name, tensor in before.items():
            assert torch.equal(tensor, after[name]), name
    trained, as_one = saved_state(two), saved_state(tmp_path / "one")
    assert not torch.equal(trained["model.head.weight"], as_one["model.head.weight"])


@pytest.mark.slow
def test_each_device_writes_its_rows_and_another_number_reads_its_own(tmp_path: Path) -> None:
    """The 11 rows of the vocabulary are cut into 6 and 5, then into 3, 3, 3 and 2."""
    two, taken = tmp_path / "two", tmp_path / "taken"
    together(train_and_save, 2, "fsdp", None, tmp_path / "start", two, 2)
    together(train_and_save, 4, "fsdp", written(two), taken, tmp_path / "end", 4, 1)
    before, after = saved_state(two), saved_state(taken)
    assert all(torch.equal(before[name], after[name]) for name in before)
    whole_bytes = sum(tensor.nbytes for tensor in before.values())
    for folder, count in ((two, 2), (taken, 4)):
        files = files_of(written(folder))
        assert len(files) == count
        for file in files:
            rows = torch.load(file, weights_only=True)["rows"]
            assert sum(tensor.nbytes for tensor in rows.values()) < 1.2 * whole_bytes / count
    assert files[0].stat().st_size < files_of(written(two))[0].stat().st_size


def write_where_the_second_finds_no_space(path: Path) -> str:
    """Return what is raised in this process."""
    dist.init_process_group("gloo")
    if dist.get_rank():
        shutil.disk_usage = lambda path: SimpleNamespace(free=5)  # type: ignore[assignment]
    try:
        write_shard({"rows": {"w": torch.ones(2)}, "rest": {}}, path)
    except CheckpointError as error:
        return str(error)
    finally:
        dist.destroy_process_group()
    return ""


def test_where_one_device_cannot_write_all_say_so_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "step-00000002.shards"
    said = together(write_where_the_second_finds_no_space, 2, path)
    assert "shard-00001-of-00002.ckpt could not be written (it needs" in said[0]
    assert said[0] == said[1]
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_take_the_steps_of_one(strategy: str, tmp_path: Path) -> None:
    """Sums are taken in another order: float32 differs in its last bits, and AdamW keeps them."""
    paths = [tmp_path / "one", tmp_path / "two"]
    together(train_and_save, 1, "single", None, tmp_path / "start", paths[0], 6)
    together(train_and_save, 2, strategy, None, tmp_path / "start", paths[1], 6)
    one, two = map(saved_state, paths)
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
