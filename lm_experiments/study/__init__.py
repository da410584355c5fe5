"""From what was typed to runs: composed, checked, planned, started, and told about.

`command.py` is where `scripts/train.py` enters. `choices.py` offers components to Hydra,
`plan.py` turns a composed configuration into a checked run with a name, `sweeper.py` plans a
sweep and hands what is missing to Hydra's launcher, `isolation.py` gives each run a process.
`catalogue.py` is what `scripts/components.py` prints.
"""
