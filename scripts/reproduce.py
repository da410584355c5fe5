"""Train cells of a table again and compare: python scripts/reproduce.py --help."""

import sys

from lm_experiments.cli.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
