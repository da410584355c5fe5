"""Train one run, from its directory to its ``result.json``."""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_only

from lm_experiments.data import prepare
from lm_experiments.errors import InputError
from lm_experiments.model import build_model
from lm_experiments.rundir.identity import Identity, read_identity
from lm_experiments.rundir.names import HASH_END, TOKENIZER, log_name
from lm_experiments.rundir.pause import pause_of
from lm_experiments.rundir.results import DONE, FAILED, INTERRUPTED, write_result
from lm_experiments.training.averages import AverageWeights
from lm_experiments.training.batches import Batches, portion_of
from lm_experiments.training.callbacks import (
    Checkpoints,
    Interruption,
    StopAtBadNumbers,
    WholeFiles,
)
from lm_experiments.training.checkpoints import (
    CheckpointError,
    check_writable,
    checkpoint_step,
    checkpoint_to_go_on_from,
    keep_weights,
)
from lm_experiments.training.config import RunConfig, load_config
from lm_experiments.training.devices import Device, find_device, peak_memory_bytes, prepare_process
from lm_experiments.training.diagnostics import Diagnostics
from lm_experiments.training.document_losses import KeepDocumentLosses
from lm_experiments.training.loggers import RunLoggers, build_loggers, logged_run
from lm_experiments.training.module import LanguageModel
from lm_experiments.training.output import unbreakable_output
from lm_experiments.training.parallel import STRATEGIES, environment_of
from lm_experiments.training.progress import RunProgress
from lm_experiments.training.result import code_patch, provenance, result_of
from lm_experiments.training.samples import Samples
from lm_experiments.training.signals import StopSignals
from lm_experiments.training.world import SINGLE_PROCESS, World

log = logging.getLogger(__name__)


def train_rank(
    run_dir: Path,
    world: World = SINGLE_PROCESS,
    begun: Callable[[], object] = lambda: None,
    is_beside: bool = False,
) -> None:
    """Train or continue the run of a directory, as one of the processes that do it together.

    Its directory is `claimed` by the caller. However it ends, ``result.json`` says so, and so does
    W&B. ``begun`` is called when the first step begins. With ``is_beside`` it is trained beside
    others, and leaves a terminal to what tells of all.

    Raises:
        InputError: where there are more processes, or fewer, than the run has devices.
        SystemExit: 128 plus the number of a signal that asked for an end, the run saved and
            marked interrupted.
    """
    config = load_config(run_dir)
    if world.size != config.trainer.devices:
        raise InputError(
            f"{run_dir} has trainer.devices={config.trainer.devices} and is trained by "
            f"{world.size} processes; start as many as it has devices."
        )
    rank_zero_only.rank = world.rank  # type: ignore[attr-defined]
    with unbreakable_output(), _logging_to(run_dir, world):
        Run(run_dir, config, read_identity(run_dir), world, begun, is_beside).train()


class Run:
    """One run in progress: its configuration, device, loggers, and what it has seen.

    Where several processes train it together, the first alone writes files and talks to W&B.
    """

    def __init__(
        self,
        run_dir: Path,
        config: RunConfig,
        identity: Identity,
        world: World = SINGLE_PROCESS,
        begun: Callable[[], object] = lambda: None,
        is_beside: bool = False,
    ) -> None:
        self.run_dir = run_dir
        self.world = world
        self.begun = begun
        self.has_line = world.is_rank_zero and not (is_beside and sys.stderr.isatty())
        self.started = time.perf_counter()
        self.cpu_started = time.process_time()
        self.signals = StopSignals()
        self.config = config
        self.identity = identity
        # Past this step nothing is trained now.
        self.last_step = min(
            config.trainer.max_steps, pause_of(run_dir) or config.trainer.max_steps
        )
        self.rests = False
        self.checkpoint = checkpoint_to_go_on_from(run_dir, config.trainer.max_steps)
        self.device: Device | None = None
        self.module: LanguageModel | None = None
        self.loggers: RunLoggers | None = None
        average = config.trainer.average
        self.average = None if average == "none" else AverageWeights(config.trainer)
        self.tokenizer_hash: str | None = None

    def train(self) -> None:
        """Train to the end, and write down how it ended."""
        with self.signals:
            try:
                self._fit()
            except BaseException as error:
                log.exception("The run stopped.")
                asked = self._was_asked(error)
                self._close(INTERRUPTED if asked else FAILED, None if asked else error)
                if asked and not isinstance(error, SystemExit):
                    raise SystemExit(128 + (self.signals.number or 0)) from None
                raise
            self._close(INTERRUPTED if self.rests else DONE)
        if dist.is_initialized():
            dist.destroy_process_group()

    def _was_asked(self, error: BaseException) -> bool:
        """Return whether a signal has ended the run, rather than a component that exits.

        Of several processes one that ends before the others, as all do where a signal comes before
        the first step, breaks their connections.
        """
        if self.signals.number is None:
            return False
        missed = self.world.size > 1 and isinstance(error, RuntimeError)
        return isinstance(error, SystemExit) or (missed and not isinstance(error, CheckpointError))

    def _fit(self) -> None:
        config = self.config
        if self.world.is_rank_zero:
            check_writable(self.run_dir, self.checkpoint)
        self.device = find_device(config)
        prepare_process(config, self.device)
        self.loggers = self._build_loggers() if self.world.is_rank_zero else None
        cache = Path(config.cache_dir).expanduser()
        data = prepare(config.data.corpus, config.tokenizer, cache)
        self.tokenizer_hash = data.tokenizer.fingerprint
        if self.world.is_rank_zero:
            data.tokenizer.save(self.run_dir / TOKENIZER)
        model = build_model(config.model, config.seed)
        model.recompute = config.trainer.activation_checkpointing
        if self.device.compile:
            model.compile()
        self.module = LanguageModel(
            config,
            model,
            self.device.micro_batch_size,
            data.val.bytes,
            self.world,
            data.test.bytes if data.test else None,
            portion_of(config, data),
        )
        batches = Batches(config, data, self.device.type == "cuda", self.world)
        trainer = self._build_trainer(batches)
        with _set_up_not_collected():
            trainer.fit(
                self.module, datamodule=batches, ckpt_path=self.checkpoint, weights_only=True
            )
        # The last step has a point of the curve, and a pass over the whole validation set.
        if self.module.history.validated_step != trainer.global_step:
            trainer.validate(self.module, datamodule=batches, verbose=False)
        self.rests = trainer.global_step < config.trainer.max_steps and self.module.is_finite()
        if self.rests:
            return
        if self.module.portion is not None:
            self.module.last_pass = True
            trainer.validate(self.module, datamodule=batches, verbose=False)
        if self.average is not None and self.average.weights:
            self.module.of_average = True
            with self.average.in_place_of(model):
                trainer.validate(self.module, datamodule=batches, verbose=False)
        if data.test is not None:
            model.position.extend(data.test.length(config.model.context_length))
            trainer.test(self.module, datamodule=batches, verbose=False)
        if config.trainer.keep == "weights" and self.world.is_rank_zero:
            keep_weights(self.run_dir)

    def _build_loggers(self) -> RunLoggers:
        run = logged_run(self.run_dir, self.config, provenance()["commit"], code_patch())
        step = -1 if self.checkpoint is None else checkpoint_step(self.checkpoint)
        return build_loggers(self.config.logger, run, step)

    def _build_trainer(self, batches: Batches) -> Trainer:
        trainer = self.config.trainer
        assert self.device is not None
        several = STRATEGIES.get(self.device.strategy)
        callbacks: list[Callback] = [
            # Before the checkpoint, which holds it.
            *([self.average] if self.average else []),
            Checkpoints(self.run_dir, trainer.checkpoint_every),
            StopAtBadNumbers(),
            KeepDocumentLosses(self.run_dir, batches),
            Interruption(self.run_dir, self.signals, self.world, self.begun),
        ]
        if self.world.is_rank_zero:
            # Before the checkpoint, which says that the rows up to its step are there.
            callbacks = [*self._watching(batches), *callbacks]
        built = Trainer(
            accelerator=self.device.type,
            devices=self.world.size,
            strategy=several() if several else "auto",
            precision=self.device.precision,  # type: ignore[arg-type]
            max_steps=self.last_step,
            max_epochs=-1,
            val_check_interval=min(trainer.val_every, self.last_step),
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=self.loggers.loggers if self.loggers else False,
            log_every_n_steps=trainer.log_every,
            plugins=[WholeFiles(), environment_of(self.world.size)],
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            default_root_dir=self.run_dir,
        )
        # Lightning's handler of SIGTERM would broadcast in the middle of another collective.
        built._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        # And ask for it at every step of several devices, which waits for them.
        built.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
        return built

    def _watching(self, batches: Batches) -> Iterator[Callback]:
        """Yield what shows and keeps how the run goes, in the first process alone."""
        config = self.config
        if self.has_line:
            yield RunProgress(f"{config.arm} s{config.seed}", self.run_dir.name[-HASH_END:])
        if config.diagnostics_every:
            yield Diagnostics(self.run_dir, config.diagnostics_every)
        if config.samples_every:
            yield Samples(self.run_dir, config, batches.data.tokenizer)

    def _close(self, status: str, error: BaseException | None = None) -> None:
        """Write ``result.json``, then close the loggers; both happen whatever went wrong.

        Where something stopped the run, that is what is raised, and not that the disk is full.
        """
        if not self.world.is_rank_zero:
            return
        result = None
        try:
            result = result_of(self.config, status, self.module, self._facts(), error)
            write_result(self.run_dir, result)
        except OSError:
            if status == DONE:
                raise
        finally:
            if self.loggers is not None:
                self.loggers.finish(0 if status == DONE or self.rests else 1, result)

    def _facts(self) -> dict[str, Any]:
        known = {
            **self.identity.hashes,
            "wall_seconds": time.perf_counter() - self.started,
            "cpu_seconds": time.process_time() - self.cpu_started,
        }
        if self.device is None:
            return known
        return {
            **known,
            "device": self.device.type,
            "world_size": self.world.size,
            "strategy": self.device.strategy,
            "precision": self.device.precision,
            "threads": torch.get_num_threads(),
            "compiled": self.device.compile,
            "deterministic": self.config.trainer.deterministic,
            "peak_memory_bytes": peak_memory_bytes(self.device),
            "tokenizer_hash": self.tokenizer_hash,
            "wandb": self.loggers.wandb_mode if self.loggers else "none",
        }


class LogFile(logging.FileHandler):
    """A log that keeps quiet where the disk is full: whatever fails for it is said elsewhere."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the record."""

    def close(self) -> None:
        """Close the file, without what it could not take."""
        with suppress(OSError):
            super().close()


@contextmanager
def _set_up_not_collected() -> Iterator[None]:
    """Have the garbage collector leave alone what is there before training: it stays anyway."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _logging_to(run_dir: Path, world: World) -> Iterator[None]:
    """Send log records and warnings of everything to the run's log; the console stays calm.

    Processes other than the first have logs of their own, where something went wrong in them.
    """
    path = run_dir / log_name(world.rank)
    handler = LogFile(path, encoding="utf-8", delay=not world.is_rank_zero)
    handler.setLevel(logging.INFO if world.is_rank_zero else logging.ERROR)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    # Lightning tells of itself through a handler of its own; what matters raises.
    for package in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(package).setLevel(logging.WARNING)
    log.info("process %d trains %s", os.getpid(), path.parent.name)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
