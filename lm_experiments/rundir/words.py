"""Durations, sizes and counts as people say them, and columns as they read them."""

from __future__ import annotations

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """Return a time such as 4.5 s, 45 s, 2 min 40 s, 12 min, 3 h 20 min or 2 d 4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(10 * round(seconds / 10), 60)
    if minutes < 10 and rest:
        return f"{minutes} min {rest} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def size(count: float) -> str:
    """Return a number of bytes such as 12 bytes, 3.4 kB or 5.6 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: float, noun: str) -> str:
    """Return a count with its noun, such as 1 run, 0.25 GPU, 0 runs or 1,200 runs."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:,g}"
    return f"{number} {noun}{'' if 0 < count <= 1 else 's'}"


def joined(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: a, b and c."""
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


def aligned(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[str]:
    """Return one line for each row, its columns aligned: ``numbers`` right, words left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rest = str.rjust if numbers else str.ljust
    return [
        "  ".join([first.ljust(widths[0]), *map(rest, others, widths[1:])]).rstrip()
        for first, *others in rows
    ]


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Return the names, each at most ``width`` long; names that differ are still told apart.

    Of a name that is too long the beginning and the end stay, as much of the end as it takes.
    """
    whole = len(set(names))
    for end in range(min(4, width - 2), width - 1):
        short = [_without_middle(name, width, end) for name in names]
        if len(set(short)) == whole:
            return short
    numbers = {name: f"~{number}" for number, name in enumerate(dict.fromkeys(names), 1)}
    return [f"{name[: width - len(numbers[name])]}{numbers[name]}" for name in names]


def _without_middle(name: str, width: int, end: int) -> str:
    return name if len(name) <= width else f"{name[: width - end - 1]}~{name[-end:]}"
