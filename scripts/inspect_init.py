"""Draw what layers do before training: python scripts/inspect_init.py --help."""

import sys

from lm_experiments.cli.inspect_init import main

if __name__ == "__main__":
    sys.exit(main())
