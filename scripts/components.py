"""List the components that can be chosen: python scripts/components.py --help."""

import sys

from lm_experiments.cli.components import main

if __name__ == "__main__":
    sys.exit(main())
