"""Download and encode a corpus ahead of time: python scripts/prepare_data.py data=tinystories."""

import sys

if __name__ == "__main__":
    from lm_experiments.cli.prepare_data import main

    sys.exit(main())
