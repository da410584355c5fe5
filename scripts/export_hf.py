"""Write a run as a Hugging Face folder: python scripts/export_hf.py --help."""

import sys

from lm_experiments.cli.export_hf import main

if __name__ == "__main__":
    sys.exit(main())
