"""A saved view and a report of a sweep in W&B, built with wandb-workspaces."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lm_experiments.errors import InputError, not_installed
from lm_experiments.report.collect import Sweep, collect
from lm_experiments.rundir.metrics import last_rows
from lm_experiments.rundir.names import CONFIG, METRICS
from lm_experiments.study.wandb_summary import SUMMARY
from lm_experiments.training.wandb.axes import AXES, X_AXIS
from lm_experiments.training.wandb.client import has_credentials, quiet

LOSS = "val/loss"
# What the summary has pictures of.
PICTURES = ("forest", "curves", "effects", "sensitivity")
# What a panel is told, see `_curve` and `_summary_panels`.
_SAID = (
    *("title", "x", "y", "groupby", "groupby_aggfunc", "groupby_rangefunc"),
    *("table_name", "media_keys"),
)


@dataclass(frozen=True)
class Place:
    """Where the runs of a sweep are in W&B."""

    entity: str
    project: str
    group: str


@dataclass(frozen=True)
class Dashboard:
    """What is created: a workspace's saved view, and a report (objects of wandb-workspaces)."""

    place: Place
    view: Any
    report: Any

    def outline(self) -> dict[str, Any]:
        """Return as plain values what is created."""
        grids = [block for block in self.report.blocks if hasattr(block, "panels")]
        return {
            "in": "/".join(filter(None, (self.place.entity, self.place.project))),
            "view": {
                "name": self.view.name,
                "runs": {"group": self.place.group, "grouped by": "config.arm"},
                "sections": {
                    section.name: [_plain(panel) for panel in section.panels]
                    for section in self.view.sections
                },
            },
            "report": {
                "title": self.report.title,
                "parts": [
                    {"runs": [runset.name for runset in grid.runsets]}
                    | {"panels": [_plain(panel) for panel in grid.panels]}
                    for grid in grids
                ],
            },
        }


def build(folder: Path, entity: str = "") -> Dashboard:
    """Build the dashboard of a sweep's folder, without a network.

    Args:
        folder: the sweep's, with runs that were logged to W&B.
        entity: the user or team, where the runs name none.

    Raises:
        InputError: where wandb-workspaces is missing, or no run was logged to W&B.
    """
    if importlib.util.find_spec("wandb_workspaces") is None:
        raise InputError(not_installed("scripts/dashboard.py"))
    sweep = collect(folder)
    place = _place(sweep, entity)
    sections = _sections(_metrics(sweep))
    return Dashboard(place, _view(place, sections), _report(place, sections))


def default_entity() -> str:
    """Return the user or team that W&B takes for yours; `InputError` without an API key."""
    with quiet() as wandb:
        if not has_credentials(wandb.setup().settings.base_url):
            raise InputError("W&B asks who you are; type wandb login first.")
        return str(wandb.Api().default_entity or "")


def save(dashboard: Dashboard) -> list[str]:
    """Create the view and the report; return their addresses."""
    return [dashboard.view.save().url, dashboard.report.save().url]


def _place(sweep: Sweep, entity: str) -> Place:
    for run in sweep.runs:
        try:
            values = yaml.safe_load((run.directory / CONFIG).read_text(encoding="utf-8"))
            logger = values["logger"]
        except (OSError, KeyError, TypeError, yaml.YAMLError):
            continue
        if logger.get("name") == "wandb":
            group = logger.get("group") or sweep.record.name
            return Place(logger.get("entity") or entity, logger["project"], group)
    raise InputError(
        f"No run of {sweep.directory} was logged to W&B; train with logger=wandb, which is the "
        "default."
    )


def _metrics(sweep: Sweep) -> list[str]:
    """Return what the runs logged, the loss first."""
    rows = [row for run in sweep.runs for row in last_rows(run.directory / METRICS)]
    names = dict.fromkeys(name for row in rows for name in row if "/" in name)
    return [LOSS, *(name for name in names if name != LOSS)]


def _sections(metrics: Sequence[str]) -> dict[str, list[Any]]:
    """Return the panels of each section: the loss against every axis, then all by their prefix."""
    sections = {"loss at equal cost": [_curve(LOSS, axis) for axis in (X_AXIS, *AXES)]}
    for name in metrics:
        sections.setdefault(name.partition("/")[0], []).append(_curve(name, X_AXIS))
    return sections


def _curve(metric: str, axis: str) -> Any:
    """Return the curves of a metric: a mean for each arm, in a band of its standard error."""
    import wandb_workspaces.reports.v2 as reports

    return reports.LinePlot(
        title=f"{metric} against {axis}",
        x=axis,
        y=[metric],
        groupby=reports.Config("arm"),
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
    )


def _summary_panels() -> list[Any]:
    import wandb_workspaces.reports.v2 as reports

    tables = [reports.WeavePanelSummaryTable(table_name=name) for name in ("table", "runs")]
    return [*tables, *(reports.MediaBrowser(title=name, media_keys=[name]) for name in PICTURES)]


def _view(place: Place, sections: dict[str, list[Any]]) -> Any:
    import wandb_workspaces.workspaces as workspaces

    every = {SUMMARY: _summary_panels(), **sections}
    return workspaces.Workspace(
        entity=place.entity,
        project=place.project,
        name=place.group,
        sections=[
            workspaces.Section(name=name, panels=panels, is_open=name in [*every][:2])
            for name, panels in every.items()
        ],
        runset_settings=workspaces.RunsetSettings(
            filters=_of_group(place),
            groupby=[workspaces.Config("arm")],
        ),
    )


def _report(place: Place, sections: dict[str, list[Any]]) -> Any:
    import wandb_workspaces.reports.v2 as reports

    summary = _runset(place, SUMMARY, f"Metric('JobType') == '{SUMMARY}'")
    runs = _runset(place, "runs", f"Metric('JobType') != '{SUMMARY}'")
    blocks: list[Any] = [
        reports.H1(text="Table"),
        reports.PanelGrid(runsets=[summary], panels=_summary_panels()),
    ]
    for name, panels in sections.items():
        blocks += [reports.H1(text=name), reports.PanelGrid(runsets=[runs], panels=panels)]
    return reports.Report(
        entity=place.entity, project=place.project, title=place.group, blocks=blocks
    )


def _runset(place: Place, name: str, condition: str) -> Any:
    import wandb_workspaces.reports.v2 as reports

    filters = f"{_of_group(place)} and {condition}"
    return reports.Runset(entity=place.entity, project=place.project, name=name, filters=filters)


def _of_group(place: Place) -> str:
    """Return the filter of a group, whose name may hold quotes."""
    quoted = place.group.replace("\\", "\\\\").replace("'", "\\'")
    return f"Metric('Group') == '{quoted}'"


def _plain(panel: Any) -> dict[str, Any]:
    """Return what was said of a panel."""
    values = {name: getattr(panel, name, None) for name in _SAID}
    said = {name: getattr(value, "name", value) for name, value in values.items() if value}
    return {"panel": type(panel).__name__, **said}
