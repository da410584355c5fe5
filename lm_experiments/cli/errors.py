"""How a command ends on bad input: one sentence, and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from lm_experiments.invocation import as_typed
from lm_experiments.study.explain import explain


def refuse(error: Exception, arguments: Sequence[str]) -> NoReturn:
    """Say what is wrong in one sentence, and end the program with exit code 2."""
    print(f"error: {as_typed(explain(error, arguments))}", file=sys.stderr)
    raise SystemExit(2)
