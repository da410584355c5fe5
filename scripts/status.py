"""Show where a sweep stands: python scripts/status.py --help."""

import sys

from lm_experiments.cli.status import main

if __name__ == "__main__":
    sys.exit(main())
