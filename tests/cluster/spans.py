"""When each process was training, by the notes of the component `noting`."""

from __future__ import annotations

from harness.processes import Place


def notes(place: Place) -> dict[str, tuple[str, float, float]]:
    """Return by process: the GPU it saw, when its first and its last forward pass were."""
    found: dict[str, tuple[str, float, float]] = {}
    for line in (place.folder / "notes.txt").read_text().splitlines():
        pid, gpu, moment = line.split(" ")
        first = found.get(pid, (gpu, float(moment), 0))[1]
        found[pid] = (gpu, first, float(moment))
    return found


def at_once(spans: list[tuple[str, float, float]]) -> int:
    """Return how many spans overlap at most."""
    return max(sum(a <= start <= b for _, a, b in spans) for _, start, _ in spans)
