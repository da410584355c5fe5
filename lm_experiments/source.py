"""Which version of this package a machine has, and which program trains.

Sent to other machines as it stands, so it imports nothing of the package.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "lm_experiments"
# What trains a run directory.
TRAINING = f"{PACKAGE}.training.fit"


def source_hash() -> str | None:
    """Return the SHA-256 of the package's source files, None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def training_hash() -> str | None:
    """Return the SHA-256 of the program that trains, None where the package is not installed.

    It covers the files of the package that training imports, directly or not. Comments, docstrings
    and blank lines do not count. It is the same for every version of Python.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    digest = hashlib.sha256()
    for name, source in sorted(_imported(package, TRAINING).items()):
        digest.update(name.encode() + b"\0" + program_text(source).encode())
    return digest.hexdigest()


def program_text(source: str) -> str:
    """Return Python source without its comments, docstrings and blank lines."""
    lines = source.splitlines()
    for first, start, last, end in [*_comments(source), *_docstrings(source)]:
        rest = lines[last - 1].encode()[end:].decode()
        lines[first - 1] = lines[first - 1].encode()[:start].decode() + rest
        lines[first:last] = [""] * (last - first)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _imported(package: Path, entry: str) -> dict[str, str]:
    """Return the sources of the package that a module imports, directly or not, by module."""
    found: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        path = package.parent.joinpath(*name.split("."))
        file = next(
            (f for f in (path.with_suffix(".py"), path / "__init__.py") if f.is_file()), None
        )
        if name not in found and file is not None and name.split(".")[0] == PACKAGE:
            found[name] = file.read_text("utf-8")
            waiting += [*_imports(found[name]), name.rpartition(".")[0]]
    return found


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def _comments(source: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the first line, its column, the last line and its end of each; columns in bytes."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            start = len(lines[row - 1][:column].encode())
            yield row, start, row, start + len(token.string.encode())


def _docstrings(source: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield the same of each docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            assert text.end_lineno is not None and text.end_col_offset is not None
            yield text.lineno, text.col_offset, text.end_lineno, text.end_col_offset


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def inspect_machine(shared: str) -> dict[str, Any]:
    """Return the package's ``code_hash`` and ``version``, and whether a file is ``shared``.

    Args:
        shared: a file that exists wherever the sweep's folder is mounted.
    """
    return {
        "code_hash": source_hash(),
        "version": f"{PACKAGE} {version_of(PACKAGE)}, torch {version_of('torch')}",
        "shared": Path(shared).exists(),
    }
