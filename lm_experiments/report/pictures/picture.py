"""A figure that keeps the look of all pictures wherever it is shown or saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("style.mplstyle")


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the look of all pictures meanwhile, whatever the reader has set."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(STYLE, False, False))
        yield


class Picture(Figure):
    """A figure without pyplot, shown by notebooks."""

    def savefig(self, *arguments: Any, **options: Any) -> None:
        """Save as matplotlib does, in the look of all pictures."""
        with styled():
            super().savefig(*arguments, **options)

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png")
        return content.getvalue()
