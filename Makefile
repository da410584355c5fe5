# Two commands do all the set-up they need, on a machine that has Python 3.10 or newer:
#   make ablation   trains the twelve-arm grid on the embedded corpus and prints its table
#   make test       lint, types, import rules and tests
#   make docs       the site of docs/, in site/
PYTHON ?= python3
BIN := .venv/bin
GRID := placement=pre,post ffn=relu,swiglu position=sinusoidal,learned,rope

# Tests share the cores with the programs they start: threads that wait must not keep a core busy.
test test-slow: export OMP_WAIT_POLICY := PASSIVE
# Two processes, each with whole files of tests.
SIDE_BY_SIDE := -n 2 --dist loadfile

.PHONY: ablation docs test test-slow lint types imports format clean
.DELETE_ON_ERROR:

ablation: .venv/installed
	$(BIN)/python scripts/train.py -m name=grid $(GRID)

docs: .venv/installed
	$(BIN)/python -m lm_experiments.cli.keys_page docs/keys.md
	$(BIN)/zensical build --clean --strict

test: lint types imports
	$(BIN)/python -m pytest -m "not slow" $(SIDE_BY_SIDE)

test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

imports: .venv/installed
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .cache build site *.egg-info

# constraints.txt holds the versions that were tested together.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
