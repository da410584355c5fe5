"""All checks that need a GPU, in eight minutes: ``bash scripts/gpu_check.sh``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import lm_experiments
from lm_experiments.benchmark.rounds import device_name

PAGE, NUMBERS = "gpu_check.md", "gpu_check.json"
# Seconds for everything; a CPU has so many times as long.
LIMIT = 480.0
PATIENCE = 4


@dataclass(frozen=True)
class Check:
    """A subject of ``scripts/benchmark.py``: its rounds, and the seconds it may take at most."""

    subject: str
    rounds: int
    seconds: float


CHECKS = (
    Check("attention", 10, 45),
    Check("determinism", 10, 45),
    Check("peers", 10, 60),
    Check("compiled", 10, 100),
    Check("head", 3, 90),
    Check("compile", 10, 80),
    Check("eval", 3, 60),
    Check("growth", 1, 150),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks and write their page and numbers; 0 if every one was measured."""
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="rehearse on the CPU, one round each")
    parser.add_argument("--out", type=Path, default=Path("gpu_check"), help="the folder to write")
    options = parser.parse_args(arguments)
    if not options.cpu and not torch.cuda.is_available():
        print("error: there is no GPU here; type --cpu to rehearse on the CPU.", file=sys.stderr)
        return 2
    return 0 if all(found["measured"] for found in run(CHECKS, options.out, options.cpu)) else 1


def run(
    checks: Sequence[Check], out: Path, on_cpu: bool, limit: float = LIMIT
) -> list[dict[str, Any]]:
    """Run each check in a process of its own, whatever becomes of the others; write as they come.

    Returns:
        For each check its subject, whether it was measured, its seconds, and what it printed.
    """
    out.mkdir(parents=True, exist_ok=True)
    begun, found = time.monotonic(), list[dict[str, Any]]()
    factor = PATIENCE if on_cpu else 1
    for check in checks:
        left = factor * limit - (time.monotonic() - begun)
        found.append(_measured(check, out, on_cpu, min(factor * check.seconds, left)))
        print(f"{check.subject}: {found[-1]['seconds']:.0f} s", flush=True)
        _write(found, out, on_cpu)
    return found


def _measured(check: Check, out: Path, on_cpu: bool, limit: float) -> dict[str, Any]:
    numbers = out.absolute() / f"{check.subject}.json"
    words = ["benchmark", check.subject, "--rounds", str(1 if on_cpu else check.rounds)]
    command = [sys.executable, "-m", "lm_experiments.cli.main", *words, "--json", str(numbers)]
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=out,
            env=_environment(on_cpu),
            capture_output=True,
            text=True,
            timeout=max(1.0, limit),
        )
        said, measured = done.stdout + done.stderr, done.returncode == 0
    except subprocess.TimeoutExpired:
        said, measured = f"It took longer than the {limit:.0f} s it has.", False
    return {
        "subject": check.subject,
        "measured": measured,
        "seconds": time.monotonic() - start,
        "said": said.strip(),
        "numbers": json.loads(numbers.read_text(encoding="utf-8")) if measured else None,
    }


def _environment(on_cpu: bool) -> dict[str, str]:
    package = str(Path(lm_experiments.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if on_cpu else {}
    return {**os.environ, "PYTHONPATH": path, **hidden}


def _write(found: Sequence[dict[str, Any]], out: Path, on_cpu: bool) -> None:
    name = "cpu, a rehearsal" if on_cpu else device_name()
    content = {"device": name, "torch": torch.__version__, "checks": list(found)}
    (out / NUMBERS).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    lines = [f"# GPU checks on {name}", "", f"PyTorch {torch.__version__}."]
    for check in found:
        state = "" if check["measured"] else ", **not measured**"
        lines += ["", f"## {check['subject']} ({check['seconds']:.0f} s{state})", ""]
        lines += ["```text", check["said"], "```"]
    (out / PAGE).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
