"""The mirror of a run in Weights & Biases."""
