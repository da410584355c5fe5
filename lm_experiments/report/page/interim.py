"""The page of a sweep that goes on, written again as its runs end."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from lm_experiments.report.collect import collect
from lm_experiments.report.page import PAGE, page_html
from lm_experiments.report.table.rows import build_table
from lm_experiments.rundir.atomic import write_atomically
from lm_experiments.rundir.ledger import utc

# A page is written once in so many seconds at most, and for so small a share of the time.
EVERY_SECONDS, SHARE = 60.0, 0.02


class InterimPage:
    """Writes a page without comparisons, which is no look at the results, not too often."""

    def __init__(self) -> None:
        self._due = time.monotonic() + EVERY_SECONDS

    def refresh(self, folder: Path) -> None:
        """Write the page of a sweep's folder where it is due; a page that fails is left out."""
        start = time.monotonic()
        if start < self._due:
            return
        # The sweep matters more; what is wrong is said with its table.
        with contextlib.suppress(ValueError, OSError):
            write_interim(folder)
        took = time.monotonic() - start
        self._due = start + max(EVERY_SECONDS, took / SHARE)


def write_interim(folder: Path) -> None:
    """Write the page of a sweep that goes on; `InputError` as for its table."""
    now = utc()[:19].replace("T", " ") + " UTC"
    write_atomically(folder / PAGE, page_html(build_table(collect(folder)), now))
