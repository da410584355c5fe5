"""Make a gallery of published claims: python scripts/gallery.py --help."""

import sys

from lm_experiments.cli.gallery import main

if __name__ == "__main__":
    sys.exit(main())
