"""Contrasts between arms over seeds: tests, intervals, power, verdicts. Reads no files."""
