"""The command: exit status, one sentence on errors, and a start that loads nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

import pytest
from harness.commands import python
from synthetic_runs import SweepFactory, history, result_of


@pytest.fixture
def main() -> Callable[[Sequence[str]], int]:
    """The `main` function of the script."""
    module = import_module("lm_experiments.cli.table")
    found: Callable[[Sequence[str]], int] = module.main
    return found


def test_prints_the_table_and_the_files(
    sweep: SweepFactory,
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep.run("a", result=result_of("a", 0, 3.0), metrics=history(3.0, 0))
    sweep.done("b", {0: 3.125})
    assert main([str(sweep.plan()), "--baseline", "b"]) == 0
    out = capsys.readouterr().out
    assert "3.1250" in out
    assert "-0.1250" in out
    for name in ("table.md", "table.csv", "table.json", "table.tex", "curves.png", "report.html"):
        assert f"Wrote {sweep.root / name}" in out
        assert (sweep.root / name).is_file()


@pytest.mark.parametrize("extra", [["--baseline", "c"], []])
def test_errors_are_one_sentence_and_status_2(
    sweep: SweepFactory,
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
) -> None:
    sweep.done("a", {0: 3.0})
    folder = sweep.plan() if extra else sweep.root / "absent"
    assert main([str(folder), *extra]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert captured.err.endswith(".\n")


def test_mixed_runs_are_refused_until_they_are_allowed(
    sweep: SweepFactory,
    main: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep.done("a", {0: 3.0})
    sweep.done("b", {0: 3.1}, commit="b" * 40)
    root = str(sweep.plan())
    assert main([root]) == 2
    assert "differ in code" in capsys.readouterr().err
    assert not (sweep.root / "table.md").exists()
    assert main([root, "--allow-mixed"]) == 0
    assert "Warning: the runs differ in code" in capsys.readouterr().out
    assert "Warning: the runs differ in code" in (sweep.root / "table.md").read_text()


def test_start_up_loads_neither_torch_nor_scipy_nor_matplotlib() -> None:
    code = (
        "import sys, lm_experiments.report; "
        "print(sorted({'torch', 'hydra', 'scipy', 'matplotlib', 'pandas', 'lightning'}"
        " & set(sys.modules)))"
    )
    done = python(code)
    assert done.stdout == "[]\n", done.stderr
