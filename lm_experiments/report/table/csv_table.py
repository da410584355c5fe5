"""`table.csv`: one record per arm at full precision, for programs."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from lm_experiments.report.statistics.contrasts import Summary
from lm_experiments.report.table.cost_notes import TO_LOSS, equal_in, to_baseline
from lm_experiments.report.table.published import of_row, published_text, verdict_text
from lm_experiments.report.table.rows import Row, Table

if TYPE_CHECKING:
    from lm_experiments.report.statistics.ladder import LadderFindings
    from lm_experiments.report.statistics.noise import Noise

_CONTRAST = {
    "difference_mean": "mean",
    "difference_sd": "sd",
    "difference_half_width_95": "half_width",
    "difference_low_95": "low",
    "difference_high_95": "high",
    "difference_n": "n",
    "p": "p",
    "p_holm": "adjusted_p",
    "p_plain": "plain_p",
    "p_plain_holm": "plain_adjusted_p",
    "p_equivalent": "equivalent_p",
}
_WITHIN = {
    "p_equivalent_holm": "adjusted_p",
    "equivalence_confidence": "confidence",
    "equivalence_low": "low",
    "equivalence_high": "high",
}


def csv_text(table: Table) -> str:
    """One record per arm at full precision, for programs; what is unknown is left empty."""
    out = io.StringIO()
    records = [_record(row, table) for row in table.rows]
    writer = csv.DictWriter(out, records[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def _record(row: Row, table: Table) -> dict[str, object]:
    metric, comparison = table.metric, row.comparison
    within = row.difference.within if row.difference else None
    other = table.other_metric
    return {
        "arm": row.arm,
        **dict(zip(table.axes, row.levels, strict=True)),
        "baseline": str(row.is_baseline).lower(),
        **(_tuning_record(row, table.tune.key, metric) if table.tune else {}),
        **_statistics(metric, row.loss),
        "n": len(row.usable),
        "planned": len(row.runs),
        "reference": comparison.reference if comparison else None,
        **{name: getattr(row.difference, field, None) for name, field in _CONTRAST.items()},
        **{name: getattr(within, field, None) for name, field in _WITHIN.items()},
        **_noise_record(comparison.noise if comparison else None),
        "verdict": comparison.verdict if comparison else None,
        **(_published_record(row, table) if table.published else {}),
        **(_ladder_record(row, table.ladder) if table.ladder else {}),
        other: row.mean(other),
        **{name: row.mean(name) for name in table.scored},
        "learning_rate": row.first("learning_rate"),
        "parameters": row.first("parameters"),
        "non_embedding": row.first("non_embedding"),
        "flops_per_token": row.first("flops_per_token"),
        "tokens_per_second": row.mean("tokens_per_second"),
        **_cost_record(row, table),
        "outcome": row.outcome,
        **_elsewhere_record(row, table),
    }


def _tuning_record(row: Row, key: str, metric: str) -> dict[str, object]:
    common = row.common
    return {
        f"best_{key}": row.chosen.value if row.chosen else None,
        "best_at_edge": str(bool(row.chosen.edge)).lower() if row.chosen else None,
        f"{key}_sensitivity": row.tuned.sensitivity if row.tuned else None,
        f"{key}_choice_variance": row.tuned.noise.variance
        if row.tuned and row.tuned.noise
        else None,
        **_statistics(f"common_{metric}", common.loss if common else None),
        "common_n": len(common.usable) if common else None,
    }


def _cost_record(row: Row, table: Table) -> dict[str, object]:
    """What the arm is equal in, and what it takes to the baseline's loss, as ratios."""
    record: dict[str, object] = {"equal": ", ".join(equal_in(table, row)) or None}
    fields = {"": "ratio", "_low_95": "low", "_high_95": "high"}
    for against in TO_LOSS:
        found = to_baseline(table, row, against)
        record["reached_baseline"] = found.reached if found else None
        for end, field in fields.items():
            record[f"{against}_to_baseline{end}"] = getattr(found, field, None)
    return record


def _published_record(row: Row, table: Table) -> dict[str, object]:
    found = of_row(table, row)
    return {"published": published_text(found), "holds": verdict_text(found)}


def _ladder_record(row: Row, found: LadderFindings) -> dict[str, object]:
    """The rung of a row, and the trend of its contrast, which is the same at every rung."""
    rung = found.ladder.rung_of(row.arm)
    item = next((c for c in found.contrasts if row.comparison in c.rungs), None)
    slope = item.trend.slope if item and item.trend else None
    return {
        "rung": rung.label if rung else None,
        "slope_per_doubling": slope and slope.mean,
        "slope_low_95": slope and slope.low,
        "slope_high_95": slope and slope.high,
        "slope_p_holm": slope and slope.adjusted_p,
        "lasts": item and item.verdict,
    }


def _noise_record(noise: Noise | None) -> dict[str, object]:
    across = noise if noise and noise.across_seeds else None
    return {
        "documents": noise.documents if noise else None,
        "se_seeds": noise.seed_error if noise else None,
        "se_documents": noise.document_error if noise else None,
        "new_text_low_95": across.low if across else None,
        "new_text_high_95": across.high if across else None,
    }


def _statistics(name: str, summary: Summary | None) -> dict[str, object]:
    fields = {"mean": "mean", "sd": "sd", "half_width_95": "half_width"}
    return {f"{name}_{title}": getattr(summary, field, None) for title, field in fields.items()}


def _elsewhere_record(row: Row, table: Table) -> dict[str, object]:
    """Of each context, text and task the mean, and the difference to the arm's reference."""
    found: dict[str, object] = {}
    for title, cell in table.elsewhere.cells[row.arm].items() if table.elsewhere else ():
        found[f"{title} mean"] = cell.loss.mean if cell.loss else cell.refused or None
        for name in ("mean", "low", "high"):
            found[f"{title} difference {name}"] = getattr(cell.difference, name, None)
    return found
