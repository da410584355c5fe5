"""Create a view and a report of a sweep in W&B: python scripts/dashboard.py --help."""

import sys

from lm_experiments.cli.dashboard import main

if __name__ == "__main__":
    sys.exit(main())
