"""Write the page of a sweep or study: python scripts/report.py --help."""

import sys

from lm_experiments.cli.report import main

if __name__ == "__main__":
    sys.exit(main())
