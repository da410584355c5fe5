"""Progress of encoding a corpus, with an estimate of the remaining time."""

from __future__ import annotations

import logging
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from lm_experiments.rundir.words import duration, size

SAMPLE_SECONDS = 2.0
LOG_SECONDS = 30.0

logger = logging.getLogger(__name__)


class EncodingProgress:
    """A progress bar on a terminal, and log lines: an early estimate, then regular updates."""

    def __init__(self, label: str, expected_bytes: int | None, bytes_per_token: int) -> None:
        """Start with the expected size of the text, None if unknown."""
        self.label = label
        self.expected = expected_bytes
        self.bytes_per_token = bytes_per_token
        self.documents = self.bytes = self.tokens = 0
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[amount]}"),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )

    def __enter__(self) -> EncodingProgress:
        self._bar.start()
        self._task = self._bar.add_task(f"encoding {self.label}", total=self.expected, amount="")
        self._started = self._logged = time.monotonic()
        self._estimated = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None
    ) -> None:
        self._bar.stop()
        if kind is None:
            logger.info("%s: encoded %s", self.label, self._amount())

    def add(self, documents: int, text_bytes: int, tokens: int) -> None:
        """Count encoded documents."""
        self.documents += documents
        self.bytes += text_bytes
        self.tokens += tokens
        self._bar.update(self._task, completed=self.bytes, amount=self._amount())
        now = time.monotonic()
        if not self._estimated and now - self._started >= SAMPLE_SECONDS:
            self._estimated = True
            self._logged = now
            logger.info("%s: %s", self.label, self.estimate(now - self._started))
        elif now - self._logged >= LOG_SECONDS:
            self._logged = now
            left = "remaining time unknown"
            if self.expected is not None and self.bytes:
                share = max(0.0, self.expected / self.bytes - 1)
                left = f"about {duration((now - self._started) * share)} left"
            logger.info("%s: %s so far; %s", self.label, self._amount(), left)

    def estimate(self, seconds: float) -> str:
        """Return the expected totals, extrapolated from the text encoded in `seconds`."""
        if self.expected is None or not self.bytes:
            return f"{size(self.bytes)} took {duration(seconds)}; the total size is unknown"
        scale = max(1.0, self.expected / self.bytes)
        tokens = round(self.tokens * scale)
        return (
            f"about {size(self.expected)} of text; at the pace of its first {size(self.bytes)} "
            f"about {tokens:,} tokens, {size(tokens * self.bytes_per_token)} on disk, in about "
            f"{duration(seconds * scale)}"
        )

    def _amount(self) -> str:
        return f"{self.documents:,} documents, {size(self.bytes)}, {self.tokens:,} tokens"
