"""Print the loss of trained runs: python scripts/evaluate.py --help."""

import sys

from lm_experiments.cli.evaluate import main

if __name__ == "__main__":
    sys.exit(main())
