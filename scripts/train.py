"""Train one run, or with -m a sweep: python scripts/train.py --help."""

from lm_experiments.study.command import main

if __name__ == "__main__":
    main()
