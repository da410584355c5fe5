"""What counts as another program: code that training imports, and no comment or docstring."""

from __future__ import annotations

import pytest

from lm_experiments import source
from lm_experiments.source import PACKAGE, TRAINING, program_text

CODE = '''
"""A module."""
import os  # for the path


class Norm:
    """Of a class,
    over two lines."""

    def forward(self, x):  # comment
        """Of a function."""
        # A whole line.
        text = "# no comment"  # but this é

        return x, text, """kept
        # kept too"""
'''
KEPT = '''import os
class Norm:
    def forward(self, x):
        text = "# no comment"
        return x, text, """kept
        # kept too"""'''


def test_comments_docstrings_and_blank_lines_do_not_count() -> None:
    assert program_text(CODE) == KEPT
    assert program_text(program_text(CODE)) == KEPT


@pytest.mark.parametrize(("old", "new"), [("x, text", "text, x"), ("kept too", "changed")])
def test_what_runs_counts(old: str, new: str) -> None:
    assert program_text(CODE.replace(old, new)) != KEPT


def test_a_docstring_alone_and_a_comment_after_it() -> None:
    text = 'def f():\n    """Says\n    what."""  # and why\n    return 1\n'
    assert program_text(text) == "def f():\n    return 1"
    assert program_text('class E(Exception):\n    """Bad."""\n') == "class E(Exception):"


def test_only_what_training_imports_counts() -> None:
    spec = source.importlib.util.find_spec(PACKAGE)
    assert spec is not None and spec.origin is not None
    package = source.Path(spec.origin).parent
    found = source._imported(package, TRAINING)
    assert {"lm_experiments.model.norms", "lm_experiments.data.batches", PACKAGE} <= set(found)
    assert not [name for name in found if name.split(".")[1:2] in (["report"], ["cli"], ["study"])]


def test_another_norm_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source.training_hash()
    plain = source.Path.read_text

    def edited(change: str) -> str | None:
        def read(path: source.Path, *words: str) -> str:
            return plain(path, *words) + (change if path.name == "norms.py" else "")

        source.training_hash.cache_clear()
        monkeypatch.setattr(source.Path, "read_text", read)
        return source.training_hash()

    assert edited("\n# A comment.\n") == before
    assert edited("\nEPS = 1\n") != before
    monkeypatch.setattr(source.Path, "read_text", plain)
    source.training_hash.cache_clear()
