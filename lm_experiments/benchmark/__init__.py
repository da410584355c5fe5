"""Speed, as ratios measured side by side: one file a subject, `rounds.py` for how it is timed."""
