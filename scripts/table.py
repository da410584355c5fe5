"""Print the table of a sweep or study: python scripts/table.py --help."""

import sys

from lm_experiments.cli.table import main

if __name__ == "__main__":
    sys.exit(main())
