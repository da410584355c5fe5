"""A ladder as ordinary arms: each arm of a study at each rung, so that all else works unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hydra.core.override_parser.types import Override

from lm_experiments.errors import InputError
from lm_experiments.model import count
from lm_experiments.rundir.ladder import (
    BUDGET,
    FIXED,
    MUP,
    SIZE,
    TRUNK,
    TUNED_EACH,
    Ladder,
    Rung,
)
from lm_experiments.rundir.study import REPORT, Study
from lm_experiments.rundir.words import counted
from lm_experiments.study.expand import RunSpec, key_of, study_specs, with_words
from lm_experiments.study.halving import share_of
from lm_experiments.study.keys import flat
from lm_experiments.study.plan import PlannedRun, corpus_of, distinct
from lm_experiments.training.config import RunConfig, plain_values

# Counted in steps: they keep their share of a run, so that curves have as many points at each rung.
WARMUP = "schedule.warmup_steps"
LOOKS = ("trainer.val_every", "trainer.log_every", "samples.every")
DIAGNOSED = "diagnostics.every"
CONTEXT = "model.context_length"
STEPS, RATE, BASE_WIDTH = "trainer.max_steps", "optimizer.lr", "model.init.base_width"
# Factors on the width of the study's model, where no sizes are declared.
WIDTHS = (1, 2, 4)
RATES = {
    FIXED: "the learning rate is the same at every rung",
    TUNED_EACH: "the learning rate is tuned at each rung",
    MUP: "the learning rate is carried from the smallest rung by muP",
}

# Returns the checked configuration of a run.
Configure = Callable[[RunSpec], RunConfig]
# Returns the configuration of an arm with overrides of a rung on top.
Compose = Callable[[str, Sequence[str]], RunConfig]


@dataclass(frozen=True)
class _Level:
    """A rung in the making: by arm, its overrides there, its configuration and its steps."""

    label: str
    words: dict[str, list[str]]
    configs: dict[str, RunConfig]
    steps: dict[str, int]

    def cost(self, arm: str) -> float:
        """Return the FLOPs of training an arm there."""
        config = self.configs[arm]
        flops = count(config.model).training_flops_per_token
        return float(flops) * self.steps[arm] * config.tokens_per_step


def expanded(
    study: Study, ladder: Ladder, overrides: Sequence[Override], configured: Configure
) -> Study:
    """Return the study whose arms are those of ``study`` at each rung of ``ladder``.

    Contrasts and controls hold within each rung, published claims and the baseline at the largest.

    Args:
        overrides: those of the command line.
        configured: composes and checks one run.
    """
    compose = partial(_composed, study, overrides, configured)
    declared = {arm: compose(arm, ()) for arm in study.arms}
    _check_steps_typed(ladder, overrides)
    ladder = _with_rungs(ladder, declared[study.baseline])
    by_budget = ladder.by == BUDGET
    climb = (
        _budgets(ladder, study, declared) if by_budget else _sizes(ladder, study, declared, compose)
    )
    levels = sorted(climb, key=lambda level: level.cost(study.baseline))
    typed = {*map(key_of, study.overrides), *(o.get_key_element() for o in overrides)}
    base = {} if by_budget or BASE_WIDTH in typed else _mup_bases(levels[0])
    arms: dict[str, list[str]] = {}
    rungs = []
    for level in levels:
        rungs.append(Rung(level.label, {arm: f"{arm} at {level.label}" for arm in study.arms}))
        for arm, own in study.arms.items():
            warmup = _of_trunk(declared[arm], levels[0].steps[arm]) if ladder.trunk else {}
            words = [*level.words[arm], *_stretched(declared[arm], level, arm, warmup)]
            arms[rungs[-1].arms[arm]] = list(with_words([*base.get(arm, ()), *own], words))
    rate = _rate(study, ladder, list(declared.values()))
    ladder = replace(
        ladder, rungs=rungs, baseline=study.baseline, contrasts=study.compared, rate=rate
    )
    return _of_arms(study, arms, ladder)


def _of_arms(study: Study, arms: dict[str, list[str]], ladder: Ladder) -> Study:
    """Return the study of these arms, with all that names arms of the declared one."""
    rungs, top = ladder.rungs, ladder.rungs[-1].arms
    return replace(
        study,
        arms=arms,
        baseline=top[study.baseline],
        contrasts=[[rung.arms[arm] for arm in pair] for rung in rungs for pair in study.compared],
        controls=[rung.arms[arm] for rung in rungs for arm in study.controls],
        published=[claim.called(top) for claim in study.published],
        ladder=ladder,
    )


def ladder_lines(runs: Sequence[PlannedRun], study: Study | None) -> list[str]:
    """Return a line on the ladder, and one on each rung: what it is, and its share of the cost."""
    if study is None or study.ladder is None:
        return []
    ladder, costs = study.ladder, dict.fromkeys((rung.label for rung in study.ladder.rungs), 0.0)
    numbers = dict.fromkeys(costs, 0)
    shown: dict[str, PlannedRun] = {}
    for run in distinct(runs):
        rung = ladder.rung_of(run.config.arm)
        assert rung is not None
        costs[rung.label] += run.own_flops * share_of(run, study.tune)
        numbers[rung.label] += 1
        if run.config.arm == rung.arms[ladder.baseline]:
            shown.setdefault(rung.label, run)
    trunk = f" {TRUNK}." if ladder.trunk else ""
    lines = [f"ladder by {ladder.by}, {counted(len(costs), 'rung')}; {RATES[ladder.rate]}.{trunk}"]
    for label, run in shown.items():
        share = costs[label] / sum(costs.values())
        lines.append(
            f"  {label}: {run.ledger.parameters:,} parameters, "
            f"{counted(run.config.trainer.max_steps, 'step')}, {run.config.tokens:,} tokens, "
            f"{counted(numbers[label], 'run')}, {share:.0%} of the compute"
        )
    return lines


def _composed(
    study: Study,
    overrides: Sequence[Override],
    configured: Configure,
    arm: str,
    words: Sequence[str],
) -> RunConfig:
    arms = {**study.arms, arm: list(with_words(study.arms[arm], words))}
    cell = (arm, study.seeds[0], REPORT, dict[str, float]())
    [spec] = study_specs(replace(study, arms=arms), overrides, None, [cell])
    return configured(spec)


def _check_steps_typed(ladder: Ladder, overrides: Sequence[Override]) -> None:
    """Refuse steps on the command line where the ladder alone says how many there are."""
    declared = ladder.steps if ladder.by == BUDGET else ladder.by != SIZE
    typed = [o.input_line for o in overrides if o.get_key_element() == STEPS]
    if typed and declared:
        key = "steps=[75,300,1200]" if ladder.by == BUDGET else f"ratio={ladder.ratio:g}"
        raise InputError(
            f"{typed[-1]} changes nothing beside this ladder, whose rungs say how long they train; "
            f"type study.ladder.{key}."
        )


def _with_rungs(ladder: Ladder, base: RunConfig) -> Ladder:
    """Return the ladder with its declared rungs, or those that follow from the baseline."""
    if ladder.by == BUDGET:
        steps = base.trainer.max_steps
        return replace(ladder, steps=ladder.steps or [max(1, steps // 4), steps, 4 * steps])
    model = base.model
    sizes = {
        f"width {factor * model.d_model}": [
            f"model.{key}={factor * getattr(model, key)}" for key in ("d_model", "n_heads", "d_ff")
        ]
        for factor in WIDTHS
    }
    return replace(ladder, sizes=ladder.sizes or sizes)


def _budgets(ladder: Ladder, study: Study, declared: dict[str, RunConfig]) -> list[_Level]:
    """Return the rungs of a budget ladder; an arm with steps of its own keeps its share."""
    base = declared[study.baseline]
    whole = {arm: config.trainer.max_steps for arm, config in declared.items()}
    alike = len(set(whole.values())) == 1
    levels = []
    for budget in ladder.steps:
        share = budget / base.trainer.max_steps
        steps = {arm: max(1, round(share * own)) for arm, own in whole.items()}
        tokens = f"{budget * base.tokens_per_step / 1e6:.4g}M tokens"
        label = f"{budget} steps" if alike else tokens
        levels.append(_Level(label, {arm: [] for arm in declared}, declared, steps))
    return levels


def _sizes(
    ladder: Ladder, study: Study, declared: dict[str, RunConfig], compose: Compose
) -> list[_Level]:
    """Return the rungs of the other ladders; all are composed before the first corpus is read."""
    levels = []
    for label, words in ladder.sizes.items():
        for arm, own in study.arms.items():
            if clash := {*map(key_of, own)} & {*map(key_of, words)}:
                raise InputError(
                    f"Arm {arm!r} sets {clash.pop()}, which rung {label!r} of the ladder sets for "
                    "all arms; take it out of one of them."
                )
        every = {arm: [*words, *_same_context(config, words)] for arm, config in declared.items()}
        configs = {arm: compose(arm, own) for arm, own in every.items()}
        steps = {arm: config.trainer.max_steps for arm, config in configs.items()}
        levels.append(_Level(label, every, configs, steps))
    if ladder.by == SIZE:
        return levels
    return [replace(level, steps=_by_tokens(ladder, study.baseline, level)) for level in levels]


def _same_context(declared: RunConfig, words: Sequence[str]) -> list[str]:
    """Return the override that holds the context as declared where a whole size is chosen.

    Losses with unlike context are of unlike text, and no table holds both.
    """
    keys = {*map(key_of, words)}
    held = [f"{CONTEXT}={declared.model.context_length}"]
    return held if "size" in keys and CONTEXT not in keys else []


def _by_tokens(ladder: Ladder, baseline: str, level: _Level) -> dict[str, int]:
    """Return each arm's steps to ``ratio`` tokens for each parameter of the baseline."""
    config = level.configs[baseline]
    vocabulary = corpus_of(config).tokenizer.vocab_size
    tokens = ladder.ratio * count(replace(config.model, vocab_size=vocabulary)).parameters
    return {a: max(1, round(tokens / c.tokens_per_step)) for a, c in level.configs.items()}


def _of_trunk(declared: RunConfig, steps: int) -> dict[str, int]:
    """Return the warm-up that all rungs of a trunk have: that of the smallest, of so many steps."""
    if (known := declared.schedule.warmup_steps) is None:
        return {WARMUP: declared.schedule.warmup(steps)}
    return {WARMUP: _part(known, steps / declared.trainer.max_steps)}


def _stretched(
    declared: RunConfig, level: _Level, arm: str, warmup: Mapping[str, int]
) -> list[str]:
    """Return the overrides by which an arm trains its steps there, with all else in proportion.

    ``warmup`` is the override of one that is not.
    """
    steps, share = level.steps[arm], level.steps[arm] / declared.trainer.max_steps
    words = {} if steps == level.configs[arm].trainer.max_steps else {STEPS: steps}
    if share != 1:
        values = flat(plain_values(declared))
        there = {key: values[key] for key in (WARMUP, *LOOKS) if values.get(key) is not None}
        words |= {key: _part(value, share) for key, value in there.items()}
        if isinstance(every := declared.diagnostics.every, int):
            # It has to be a multiple of log_every.
            rows = every // declared.trainer.log_every
            words[DIAGNOSED] = rows * words["trainer.log_every"]
    fixed = {*map(key_of, level.words[arm])}
    words |= warmup
    return [f"{key}={value}" for key, value in words.items() if key not in fixed]


def _part(steps: int, share: float) -> int:
    """Return a share of some steps: one or more, and none of none."""
    return max(min(1, steps), round(share * steps))


def _mup_bases(smallest: _Level) -> dict[str, list[str]]:
    """Return, by arm, the overrides that make the smallest rung the base model of muP."""
    models = {arm: config.model for arm, config in smallest.configs.items()}
    return {
        arm: [f"{BASE_WIDTH}={model.d_model}"]
        # A fixed width of heads is the base model's too.
        + ([] if model.head_width else [f"model.init.base_heads={model.n_heads}"])
        for arm, model in models.items()
        if model.init.name == "mup"
    }


def _rate(study: Study, ladder: Ladder, configs: Sequence[RunConfig]) -> str:
    if study.tune and study.tune.key == RATE:
        return TUNED_EACH
    by_mup = ladder.by != BUDGET and all(config.model.init.name == "mup" for config in configs)
    return MUP if by_mup else FIXED
