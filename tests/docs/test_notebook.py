"""The example notebook: it holds no output, and what it shows is there when it is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from harness.commands import ROOT

nbformat = pytest.importorskip("nbformat")
NOTEBOOK = ROOT / "docs" / "examples" / "report.ipynb"


def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def shown(cell: Any) -> set[str]:
    """The kinds of what a cell's last line shows."""
    return {
        kind
        for output in cell.outputs
        if output.output_type == "execute_result"
        for kind in output.data
    }


def test_the_notebook_is_one_and_holds_no_output() -> None:
    found = notebook()
    nbformat.validate(found)
    cells = [cell for cell in found.cells if cell.cell_type == "code"]
    assert len(cells) >= 5
    assert not [cell.id for cell in cells if cell.outputs or cell.execution_count is not None]


@pytest.mark.slow
def test_the_notebook_runs_from_its_first_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("nbclient")
    # The kernel starts in a folder of its own, where the package may not be installed.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    found = notebook()
    resources = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(found, timeout=600, resources=resources).execute()
    cells = {cell.id: cell for cell in found.cells if cell.cell_type == "code"}
    assert shown(cells["table"]) == {"text/html", "text/plain"}
    assert shown(cells["forest"]) == shown(cells["curves"]) == {"image/png", "text/plain"}
    assert shown(cells["frame"]) == {"text/html", "text/plain"}
    assert "layernorm" in cells["table"].outputs[0].data["text/html"]
