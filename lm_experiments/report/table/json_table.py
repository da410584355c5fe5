"""`table.json`: the table at full precision, with every run behind it, for programs to retrace."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from lm_experiments.report.collect import Run
from lm_experiments.report.statistics.compare import Comparison
from lm_experiments.report.statistics.contrasts import Contrast
from lm_experiments.report.statistics.ladder import LadderContrast, LadderFindings
from lm_experiments.report.statistics.power import POWER
from lm_experiments.report.statistics.trend import PARTS
from lm_experiments.report.statistics.verdicts import LEVEL
from lm_experiments.report.table.cost_notes import TO_LOSS, equal_in, realised, to_baseline
from lm_experiments.report.table.effects import effect_notes
from lm_experiments.report.table.ladder import ladder_notes
from lm_experiments.report.table.notes import headline, notes
from lm_experiments.report.table.published import sentence
from lm_experiments.report.table.rows import Row, Side, Table
from lm_experiments.rundir.atomic import jsonable
from lm_experiments.rundir.measures import MEASURES, SCORES, TESTED, UNITS

# Raised whenever a reader of the older files would misunderstand the newer.
FORMAT = 1
_RESULT_KEYS = (
    "outcome",
    "outcome_step",
    "learning_rate",
    "val_loss",
    "bits_per_byte",
    "steps",
    "tokens",
    "tokens_per_second",
)
_ARM_KEYS = ("parameters", "non_embedding", "flops_per_token")
_SHARED_KEYS = (
    "data_hash",
    "tokenizer_hash",
    "commit",
    "code_hash",
    "eval_context",
    "val_tokens",
    "steps",
    "tokens",
    "threads",
    "device",
)


def json_text(table: Table) -> str:
    """The table as JSON: study, rule, provenance, arms in ranking order, contrasts and notes.

    Losses are numbers at full precision; a non-finite number is "nan", "inf" or "-inf".
    """
    kind = "moderated " if table.moderated else ""
    content = {
        "format": FORMAT,
        "name": table.sweep.record.name,
        "command": table.sweep.record.command,
        "headline": headline(table),
        "complete": table.sweep.complete,
        "metric": table.metric,
        "unit": UNITS[table.metric],
        "baseline": table.baseline,
        "axes": list(table.axes),
        "study": asdict(table.sweep.study) if table.sweep.study else None,
        "rule": {
            "test": f"two-sided {kind}paired t over common seeds",
            "equivalence_test": "two one-sided t",
            "adjustment": "holm",
            "contrasts": table.plan.family,
            "exploratory": {
                f"{arm} against {reference}": reason
                for (arm, reference), reason in table.plan.exploratory.items()
            },
            "looks": list(table.plan.looks),
            "level": LEVEL,
            "margin": table.plan.margin,
            "smallest_resolvable": table.resolvable,
            "power": POWER,
            "allow_mixed": table.mixed,
        },
        "provenance": {key: _known(table, key) for key in _SHARED_KEYS},
        "arms": [_arm(row, table) for row in table.rows],
        "contrasts": [_comparison(item) for item in table.comparisons],
        **({"elsewhere": asdict(table.elsewhere)} if table.elsewhere else {}),
        "effects": _effects(table),
        **(_published(table) if table.published else {}),
        **({"ladder": _ladder(table, table.ladder)} if table.ladder else {}),
        "notes": notes(table),
    }
    return json.dumps(jsonable(content), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _published(table: Table) -> dict[str, Any]:
    findings = [{**asdict(found), "sentence": sentence(found, table)} for found in table.published]
    return {"published": findings}


def _effects(table: Table) -> dict[str, Any]:
    found = asdict(table.effects) if table.effects else {}
    return {**found, "notes": effect_notes(table)}


def _ladder(table: Table, found: LadderFindings) -> dict[str, Any]:
    ladder = found.ladder
    rungs = zip(ladder.rungs, found.compute, strict=True)
    return {
        "by": ladder.by,
        "rate": ladder.rate,
        "baseline": ladder.baseline,
        "rungs": [{**asdict(rung), "train_flops": flops} for rung, flops in rungs],
        "contrasts": [_ladder_contrast(item) for item in found.contrasts],
        "agreement": [asdict(item) for item in found.agreement],
        "notes": ladder_notes(table),
    }


def _ladder_contrast(item: LadderContrast) -> dict[str, Any]:
    trend = item.trend
    parts = {name: _statistics(getattr(trend, name)) for name in PARTS} if trend else {}
    return {
        "arm": item.arm,
        "reference": item.reference,
        "verdict": item.verdict,
        "rungs": [_comparison(rung) for rung in item.rungs],
        **parts,
        "kept_p": trend.kept_p if trend else None,
    }


def _known(table: Table, key: str) -> list[Any]:
    return sorted({run.fact(key) for run in table.sweep.runs if run.finished} - {None})


def _arm(row: Row, table: Table) -> dict[str, Any]:
    study = table.sweep.study
    declared = study.arms.get(row.arm) if study else None
    found = declared if declared is not None else next((r.row.overrides for r in row.known), [])
    return {
        "arm": row.arm,
        "baseline": row.is_baseline,
        "overrides": list(found),
        "levels": dict(zip(table.axes, row.levels, strict=True)),
        "outcome": row.outcome,
        "verdict": row.comparison.verdict if row.comparison else None,
        **{key: row.first(key) for key in _ARM_KEYS},
        "equal": equal_in(table, row),
        "cost": realised(table, row),
        "to_baseline": _to_baseline(row, table),
        "chosen": asdict(row.chosen) if row.chosen else None,
        "tuned": asdict(row.tuned) if row.tuned else None,
        "main": _side(row.main),
        "common": _side(row.common) if row.common else None,
        "trials": [_run(run) for run in table.sweep.trials if run.arm == row.arm],
    }


def _to_baseline(row: Row, table: Table) -> dict[str, Any]:
    found = {against: to_baseline(table, row, against) for against in TO_LOSS}
    return {against: asdict(item) for against, item in found.items() if item}


def _side(side: Side) -> dict[str, Any]:
    return {
        "statistics": asdict(side.loss) if side.loss else None,
        "contrasts": [_comparison(item) for item in side.comparisons],
        "seeds": [run.seed for run in side.runs],
        "runs": [_run(run) for run in side.runs],
    }


def _run(run: Run) -> dict[str, Any]:
    losses = [test for name, test in TESTED.items() if not MEASURES[name].answers]
    tested = losses if run.result.test_loss is not None else []
    scores = [name for name in SCORES if getattr(run.result, name) is not None]
    average = [] if run.result.average_val_loss is None else ["average_val_loss"]
    keys = (*_RESULT_KEYS, *average, *tested, *scores)
    return {
        "directory": run.row.directory,
        "seed": run.seed,
        "role": run.role,
        "setting": run.setting,
        "config_hash": run.config_hash,
        "status": run.status,
        **{key: getattr(run.result, key) for key in keys},
        "error": run.error,
    }


def _comparison(item: Comparison) -> dict[str, Any]:
    return {
        "arm": item.arm,
        "reference": item.reference,
        "control": item.control,
        "verdict": item.verdict,
        "statistics": _statistics(item.contrast) if item.contrast else None,
        "noise": asdict(item.noise) if item.noise else None,
    }


def _statistics(found: Contrast) -> dict[str, Any]:
    return {**asdict(found), "low": found.low, "high": found.high}
