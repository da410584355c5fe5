"""From the words of a sweep to its table: expanded, composed, checked, planned, trained, reported.

All runs are checked before any is trained. Runs that are done are not started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lm_experiments.errors import InputError
from lm_experiments.launch.endings import run_line
from lm_experiments.launch.launcher import Launcher
from lm_experiments.launch.resources import read_resources
from lm_experiments.launch.task import Policy
from lm_experiments.report import show_report, write_report
from lm_experiments.report.page.interim import InterimPage
from lm_experiments.report.progress import progress_line
from lm_experiments.report.statistics.tuning import pick_best
from lm_experiments.rundir import ledger
from lm_experiments.rundir.results import DONE, ENDED, OVER, read_result, run_status
from lm_experiments.rundir.study import Chosen, Study, Tuning, read_study
from lm_experiments.rundir.sweeps import SweepRecord, read_sweep, run_directories
from lm_experiments.study import expand
from lm_experiments.study.command_config import command_config
from lm_experiments.study.equal import Equaliser
from lm_experiments.study.estimate import Estimates
from lm_experiments.study.evaluations import check_evaluations, evaluate_after
from lm_experiments.study.explain import explain
from lm_experiments.study.halving import halve, leave_weights, measured_at_rungs
from lm_experiments.study.plan import (
    PlannedRun,
    arm_changes,
    check_one_each,
    checked,
    distinct,
    following_seed,
    make_directory,
    plain,
    planned,
)
from lm_experiments.study.preview import preview
from lm_experiments.study.record import check_recordable, record_of, record_sweep
from lm_experiments.study.rungs import expanded
from lm_experiments.study.store import done_elsewhere, take_runs
from lm_experiments.study.trunk import climb, on_trunk
from lm_experiments.study.wandb_summary import summarize
from lm_experiments.study.words import check_words
from lm_experiments.training.config import RunConfig
from lm_experiments.training.devices import find_device
from lm_experiments.training.logger_config import WandbConfig
from lm_experiments.training.wandb.offline import offline_summary


class Planner:
    """Plans and trains the runs of one command.

    Args:
        base: the configuration composed from what all runs of the sweep share.
        compose: composes the configuration of one run from its overrides.
    """

    def __init__(self, base: DictConfig, compose: Callable[[list[str]], DictConfig]) -> None:
        self.base, self.compose = base, compose
        # The configurations of what all arms share, by its words.
        self._shared: dict[tuple[str, ...], RunConfig] = {}
        self._study: Study | None = None
        self._equal: Equaliser | None = None
        self._declared = False
        self._compiles: bool | None = None
        self._estimates = Estimates()
        self._page = InterimPage()
        self.command = command_config(base)
        if self.command.debug:
            raise InputError(f"debug={self.command.debug} is for one run; leave out -m.")
        self.launcher = Launcher(
            base.hydra.launcher,
            _launcher(base),
            read_resources(vars(self.command.resources)),
            self.command.ray.address,
        )

    def run(self, overrides: Sequence[Override]) -> None:
        """Plan and report the runs described, train those missing; SystemExit where one failed."""
        study = None
        if self.command.study is not None:
            study = read_study(self.command.study)
            study = replace(study, seeds=expand.seeds_of(study, overrides))
            check_evaluations(study)
            if study.ladder is not None:
                study = expanded(study, study.ladder, overrides, self._configured)
            self._study = study
        if study is None:
            runs = self._plain_sweep(overrides)
        elif study.tune is None:
            runs = self._plain_study(study, overrides)
        else:
            runs = self._tuned_study(study, study.tune, overrides)
        if runs:
            evaluate_after(runs[0].directory.parent, study, self.launcher.is_remote)
            _report(runs)

    def _plain_sweep(self, overrides: Sequence[Override]) -> list[PlannedRun]:
        runs = self._plan(expand.grid_specs(overrides, self.base.name, self.base.arm))
        if not self._preview(runs, None):
            return []
        self._train(distinct(runs), expand.swept_keys(overrides), None)
        return distinct(runs)

    def _plain_study(self, study: Study, overrides: Sequence[Override]) -> list[PlannedRun]:
        """Train all runs, or where the study has a rule for seeds those that it asks for.

        By rule, the first seeds are trained, then more while contrasts are undecided.
        """
        cells = expand.report_cells(study, study.first_seeds, study.arms)
        runs = self._plan_cells(study, overrides, cells)
        if not self._preview(runs, study):
            return []
        runs = distinct(runs)
        self._train(runs, [], study)
        for size, following in pairwise(study.looks):
            undecided = write_report(runs[0].directory.parent).table.undecided
            if not undecided:
                break
            seeds = study.seeds[size:following]
            print(f"After {size} seeds, undecided: {', '.join(undecided)}; {following} seeds next.")
            cells = expand.report_cells(study, seeds, undecided)
            more = distinct(self._plan_cells(study, overrides, cells))
            self._train(more, [], study)
            runs += more
        return runs

    def _tuned_study(
        self, study: Study, tune: Tuning, overrides: Sequence[Override]
    ) -> list[PlannedRun]:
        """Train the trials, let the grid grow for all arms alike, then train the reporting runs.

        Every run is returned, or nothing where only the plan was asked for.
        """
        trials = self._plan_trials(study, tune, overrides, tune.grid)
        likely = dict.fromkeys(study.arms, tune.grid[len(tune.grid) // 2])
        reporting = self._plan_cells(study, overrides, expand.tuned_cells(study, likely))
        if not self._preview([*trials, *reporting], study):
            return []
        ended = self._try(study, tune, trials, trials)
        for _ in range(tune.limit):
            edges = {found.edge for found in _chosen(tune, ended).values()}
            grown = tune.grown(low="low" in edges, high="high" in edges)
            if not (values := [value for value in grown.grid if value not in tune.grid]):
                break
            print(f"A winner is on the edge of the grid: every arm is tried at {values} too.")
            tune = replace(tune, grid=sorted([*tune.grid, *values]))
            study = replace(study, tune=tune)
            more = self._plan_trials(study, tune, overrides, values)
            trials += more
            ended = self._try(study, tune, trials, more)
        chosen = _chosen(tune, ended)
        for arm in [arm for arm, found in chosen.items() if found.failed]:
            print(f"Trials of {arm!r} failed at its best value too; it is reported at that value.")
        best = {arm: found.value for arm, found in chosen.items()}
        runs = self._plan_cells(study, overrides, expand.tuned_cells(study, best))
        self._train(runs, [], replace(study, tune=replace(tune, chosen=chosen)))
        leave_weights(trials)
        return [*trials, *runs]

    def _plan_trials(
        self, study: Study, tune: Tuning, overrides: Sequence[Override], values: Sequence[float]
    ) -> list[PlannedRun]:
        trials = self._plan_cells(study, overrides, expand.trial_cells(study, values))
        return [measured_at_rungs(tune, run) for run in trials] if tune.halving else trials

    def _try(
        self,
        study: Study,
        tune: Tuning,
        trials: Sequence[PlannedRun],
        new: Sequence[PlannedRun],
    ) -> Sequence[PlannedRun]:
        """Train new trials, and return those of all trials that were trained to their end."""
        if tune.halving:
            return halve(tune, trials, lambda runs: self._train(runs, [], study))
        self._train(new, [], study)
        return trials

    def _plan_cells(
        self, study: Study, overrides: Sequence[Override], cells: Sequence[expand.Cell]
    ) -> list[PlannedRun]:
        runs = self._plan(expand.study_specs(study, overrides, self.base.name, cells))
        return on_trunk(runs, study)

    def _plan(self, specs: Sequence[expand.RunSpec]) -> list[PlannedRun]:
        """Compose and check all runs; only then read the corpora and find the directories.

        An arm is composed once: its runs differ in the seed, and in what refers to the seed.
        """
        composed: dict[tuple[str, ...], DictConfig] = {}
        by_seed: dict[tuple[str, ...], tuple[str, ...]] = {}
        configs: dict[tuple[tuple[str, ...], int | None], RunConfig] = {}
        keys = []
        for spec in specs:
            if spec.shared not in composed:
                composed[spec.shared] = self._composed(spec)
                _check_launcher(self.base, composed[spec.shared], spec.words)
                by_seed[spec.shared] = following_seed(composed[spec.shared])
            config = composed[spec.shared]
            key = (spec.shared, spec.seed if by_seed[spec.shared] else None)
            if key not in configs:
                if spec.seed is not None:
                    config.seed = spec.seed
                configs[key] = checked(self.launcher.with_devices(plain(config)))
            keys.append(key)
        asked = self._compiled_alike(list(configs.values()))
        count = len({(key, spec.seed) for key, spec in zip(keys, specs, strict=True)})
        record = record_of(asked[0])
        shared = self.launcher.share_out(asked, count, record.threads)
        equal = self._equaliser(record, specs[0])
        given = dict(zip(configs, shared, strict=True))
        runs = []
        for key, spec in zip(keys, specs, strict=True):
            seed = given[key].seed if spec.seed is None else spec.seed
            run = planned(equal(replace(given[key], seed=seed), spec), spec)
            time = equal.step_time(run.config)
            runs.append(replace(run, by_seed=by_seed[spec.shared], step_time=time))
        check_one_each(runs)
        runs = done_elsewhere(runs, self.command.runs_from)
        return [replace(run, changes=self._changes(run, runs[0])) for run in runs]

    def _equaliser(self, record: SweepRecord, first: expand.RunSpec) -> Equaliser:
        """Return what sets arms by the baseline: the study's, or the sweep's first arm."""
        if self._equal is None:
            typed, study = record.runs[0].overrides if record.runs else first.own, self._study
            self._equal = Equaliser(
                lambda arm: study.arms[study.baseline_of(arm)] if study else typed,
                self._checked,
                record.step_times,
                self.launcher.is_remote,
            )
        return self._equal

    def _checked(self, words: Sequence[str]) -> RunConfig:
        return checked(self.launcher.with_devices(plain(self.compose(list(words)))))

    def _compiled_alike(self, configs: list[RunConfig]) -> list[RunConfig]:
        """Decide what compile=auto is on a GPU, once for all runs of the command."""
        devices = [find_device(config) for config in configs]
        if self._compiles is None:
            self._compiles = any(device.compile for device in devices)
        return [
            replace(config, compile=self._compiles)
            if config.compile == "auto" and device.type == "cuda"
            else config
            for config, device in zip(configs, devices, strict=True)
        ]

    def _composed(self, spec: expand.RunSpec) -> DictConfig:
        """Compose a run; an InputError names the arm where a declared arm's own words are bad."""
        found = _composed_or_reason(spec.overrides, self.compose)
        if isinstance(found, DictConfig):
            return found
        own = self.command.study is not None and not isinstance(
            _composed_or_reason(spec.common, self.compose), str
        )
        raise InputError(f"Arm {spec.arm!r}: {found}" if own else found)

    def _configured(self, spec: expand.RunSpec) -> RunConfig:
        return checked(self.launcher.with_devices(plain(self._composed(spec))))

    def _changes(self, run: PlannedRun, first: PlannedRun) -> tuple[str, ...]:
        """Return what the run's arm changes of what all arms share.

        Where that is no configuration by itself, return what it changes of the first arm.
        """
        common = run.spec.common
        if common not in self._shared:
            try:
                config = self._checked(common)
                arm_changes(run, config)
            except (ValueError, OSError, HydraException, OmegaConfBaseException):
                config = first.config
            self._shared[common] = config
        return arm_changes(run, self._shared[common])

    def _preview(self, runs: Sequence[PlannedRun], study: Study | None) -> bool:
        """Print the plan, or refuse what could not be recorded; return whether to train."""
        # A tuned study lists a run once for each of its roles.
        recorded = runs if study and study.tune else distinct(runs)
        check_recordable(runs[0].directory.parent, recorded, study)
        return preview(runs, study, self.launcher, self._estimates, only=self.command.plan)

    def _train(self, runs: Sequence[PlannedRun], axes: Sequence[str], study: Study | None) -> None:
        """Record the runs as the sweep's, and train those that are missing, each once.

        ``study`` is what is declared, where something is.
        """
        folder = runs[0].directory.parent
        runs = [replace(run, seconds=self._estimates.seconds(run)) for run in runs]
        times = self._equal.step_times if self._equal else {}
        record = record_sweep(folder, runs, axes, study, self.launcher.threads, times)
        if not self._declared:
            # What the search for a tuned value adds later was declared with it.
            ledger.record_command(folder, record)
            self._declared = True
        take_runs(distinct(runs))
        waiting = [run for run in distinct(runs) if run_status(run.directory) != DONE]
        if not waiting:
            return
        for run in waiting:
            make_directory(run)
        told = partial(standing, at_once=self.launcher.at_once, page=self._page)
        policy = Policy(self.command.retries, self.command.on_failure == "stop", told)
        try:
            climb(waiting, lambda some: self.launcher.train([run.task for run in some], policy))
        except SystemExit:
            print(f"Stopped. The same command continues {folder}.")
            raise


def _chosen(tune: Tuning, trials: Sequence[PlannedRun]) -> dict[str, Chosen]:
    """Return each arm's best value, and whether it lies at an end of the grid."""
    losses: dict[str, dict[float, list[float | None]]] = {}
    for trial in trials:
        result, value = read_result(trial.directory), float(trial.spec.setting[tune.key])
        of_arm = losses.setdefault(trial.config.arm, {}).setdefault(value, [])
        of_arm.append(result.val_loss if result and result.usable else None)
    found = {arm: pick_best(by_value, tune.grid) for arm, by_value in losses.items()}
    return {arm: Chosen(best.value, best.edge, best.failed) for arm, best in found.items()}


def standing(run_dir: Path, at_once: int | None, page: InterimPage) -> str:
    """Return where the sweep of a run stands that trains so many at once; keep its page fresh."""
    page.refresh(run_dir.parent)
    return progress_line(run_dir.parent, at_once, run_dir)


def _report(runs: Sequence[PlannedRun]) -> None:
    """Print how a sweep ended, write and print its table; SystemExit where a run failed."""
    folder, directories = runs[0].directory.parent, [run.directory for run in distinct(runs)]
    states = Counter(run_status(directory) for directory in directories)
    failed = [directory for directory in directories if run_status(directory) not in OVER]
    halved = f", {states[ENDED]} ended by halving" if states[ENDED] else ""
    print(f"{states[DONE]} done, {len(failed)} failed{halved}.")
    for directory in failed:
        print(f"  {run_line(directory)}")
    record = read_sweep(folder)
    listed = {row.directory for row in record.runs} if record else set()
    try:
        if lost := [path.name for path in directories if path.name not in listed]:
            raise InputError(f"another command has taken {folder} over, without {lost[0]}.")
        report = write_report(folder)
        show_report(report)
        for logger in runs[0].config.logger.parts:
            if isinstance(logger, WandbConfig):
                summarize(folder, report, logger)
    except (InputError, OSError) as error:
        print(f"No table: {error}")
    print_offline(folder)
    if failed:
        raise SystemExit(1)


def print_offline(folder: Path) -> None:
    """Print how to upload, or look at, what W&B kept on this disk."""
    print("\n".join(offline_summary(run_directories(folder), folder)))


def _launcher(config: DictConfig) -> str:
    return str(config.hydra.runtime.choices.get("hydra/launcher"))


def _check_launcher(base: DictConfig, run: DictConfig, words: Sequence[str]) -> None:
    """Refuse a run whose own choices name another launcher: a sweep has one."""
    ours, its = (OmegaConf.to_container(c.hydra.launcher, resolve=False) for c in (base, run))
    if ours != its:
        raise InputError(
            f"{' '.join(words)} sets hydra/launcher to {_launcher(run)} for its run alone, and the "
            f"sweep has {_launcher(base)}; choose it once for all runs: "
            f"hydra/launcher={_launcher(run)}"
        )


def _composed_or_reason(
    words: Sequence[str], compose: Callable[[list[str]], DictConfig]
) -> DictConfig | str:
    """Return the configuration of some words, or one sentence on why there is none."""
    try:
        check_words(words)
        return compose(list(words))
    except (InputError, HydraException, OmegaConfBaseException) as error:
        return explain(error, words, compose)
