"""Train one run, or with -m a sweep: python scripts/train.py --help."""

import sys

if __name__ == "__main__":
    # Imported here, since every process of a run imports this file again. By then the package's
    # files may have been edited; a sweep uses them as they were when it started.
    from lm_experiments.cli.train import main

    sys.exit(main())
