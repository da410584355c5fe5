"""What a test file must leave as it was: the package's own functions, classes and methods."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import ModuleType

Named = dict[str, object]


def _members(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name, value in list(vars(module).items()):
        if inspect.isfunction(value) or inspect.isclass(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value) and value.__module__ == module.__name__:
            for member, method in list(vars(value).items()):
                if not member.startswith("_"):
                    yield f"{module.__name__}.{name}.{member}", method


def package_members() -> Named:
    """Return the functions, classes and methods of all modules of the package that are loaded."""
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "lm_experiments"
    ]
    return {name: value for module in modules for name, value in _members(module)}


def replaced(before: Named) -> list[str]:
    """Return the names that stand for something else now."""
    now = package_members()
    changed = {name: now[name] for name, old in before.items() if now.get(name, old) is not old}
    # PyTorch itself wraps the step of each class of optimizers, once.
    return [name for name, new in changed.items() if not getattr(new, "hooked", False)]
