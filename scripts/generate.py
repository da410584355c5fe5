"""Write text with a trained run: python scripts/generate.py --help."""

import sys

from lm_experiments.cli.generate import main

if __name__ == "__main__":
    sys.exit(main())
