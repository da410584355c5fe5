"""Train one run, or with -m a sweep: python scripts/train.py --help."""

if __name__ == "__main__":
    # Imported here, since each run's process imports this file again: it would read the package's
    # files as they are by then, and not as the sweep was started with.
    from lm_experiments.cli.train import main

    main()
