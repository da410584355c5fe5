"""What is to be trained: from the words of a command to runs that are checked and planned.

`sweeper.py` is Hydra's plugin for ``-m`` and calls `planner.py`: `expand.py` turns words into the
overrides of each run, `plan.py` a composed configuration into a checked run with its directory,
`checks.py` looks for arms that change nothing, `preview.py` prints the plan, `record.py` keeps it.
"""
