"""Progress of encoding: amounts, and the remaining time."""

from __future__ import annotations

from lm_experiments.data.progress import EncodingProgress


def test_an_estimate_scales_what_was_measured() -> None:
    with EncodingProgress("text", 1_000_000, bytes_per_token=2) as progress:
        progress.add(documents=3, text_bytes=100_000, tokens=25_000)
        told = progress.estimate(seconds=6.0)
    assert "about 1.0 MB of text" in told
    assert "about 250,000 tokens, 500.0 kB on disk, in about 60 s" in told


def test_where_the_size_is_not_known_none_is_told() -> None:
    with EncodingProgress("text", None, bytes_per_token=2) as progress:
        progress.add(documents=3, text_bytes=100_000, tokens=25_000)
        assert "the total size is unknown" in progress.estimate(seconds=6.0)
