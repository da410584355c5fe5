"""The ledgers of sweeps keep that their results were shown."""

from __future__ import annotations

import os

from lm_experiments.report.table.rows import Table
from lm_experiments.rundir import ledger


def keep_look(table: Table) -> None:
    """Add to the ledger of each folder of a table that it was shown, where it can be written."""
    runs, pending = table.sweep.runs, table.sweep.pending
    finished = sum(run.finished for run in runs)
    look = ledger.Look(finished, len(runs) + len(pending), table.tested, table.baseline)
    for part in table.sweep.parts or (table.sweep,):
        # What nobody here may write to, nobody here declares anything in.
        if os.access(part.directory, os.W_OK):
            ledger.append(part.directory, ledger.LOOK, look)
