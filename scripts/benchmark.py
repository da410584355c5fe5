"""Measure speed as ratios: python scripts/benchmark.py --help."""

import sys

from lm_experiments.cli.benchmark import main

if __name__ == "__main__":
    sys.exit(main())
