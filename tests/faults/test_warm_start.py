"""A command forked from the warm start is the command that a user types: state, files and result.

The other tests of faults start their commands warm, which saves each some seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.faults import fault_place
from harness.processes import slow, time_limit
from harness.runs import assert_same

# Writes down what a process inherits and what it makes of itself, in its first training step.
STATE = '''
import gc, json, logging, multiprocessing, os, resource, signal, sys, threading
from pathlib import Path
import torch
from lm_experiments.model import register
from lm_experiments.model.norms import NormOptions, RMSNorm

# Set on import, which the main process of a sweep does without.
SET_BY_LIGHTNING = ("PYTORCH_NVML_BASED_CUDA_CHECK",)

def opened():
    """Return what the file descriptors lead to, numbers of pipes and the like left out."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(path).split(":[")[0].split("/fd")[0])
        except OSError:
            pass
    return sorted(found)

def state():
    main, umask, pid = sys.modules["__main__"], os.umask(0o022), os.getpid()
    os.umask(umask)
    return {
        "argv": sys.argv,
        "executable": sys.executable,
        "flags": repr(sys.flags),
        "path": sys.path,
        "main": [main.__name__, getattr(main, "__file__", None)],
        "modules": sorted(name for name in sys.modules if name.startswith("lm_experiments.")),
        "folder": os.getcwd(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k not in SET_BY_LIGHTNING},
        "umask": umask,
        "limits": [resource.getrlimit(n) for n in range(16)],
        "signals": {n: getattr(h, "__qualname__", str(h)) for n in range(1, 32)
                    for h in [signal.getsignal(n)]},
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "leads its session": [os.getsid(0) == pid, os.getpgid(0) == pid],
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(0)),
        "files": opened(),
        "streams": [[s.encoding, s.errors, s.line_buffering, s.isatty(), s.fileno()]
                    for s in (sys.stdin, sys.stdout, sys.stderr)],
        "threads": sorted(type(thread).__name__ for thread in threading.enumerate()),
        "loggers": sorted(map(str, logging.getLogger("lm_experiments").handlers)),
        "torch": [torch.get_num_threads(), str(torch.get_default_dtype()),
                  torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled(),
                  torch.get_float32_matmul_precision()],
        "collecting": [gc.isenabled(), gc.get_threshold()],
    }

@register("norm", "telling", NormOptions)
class Telling(RMSNorm):
    """RMSNorm that writes down the state of its process."""
    def forward(self, x):
        role = "main" if multiprocessing.parent_process() is None else "child"
        file = Path(f"state-{role}.json")
        if torch.is_grad_enabled() and not file.exists():
            file.write_text(json.dumps(state()))
        return super().forward(x)
'''
WORDS = ("norm=telling", "code_paths=[telling.py]", "model.dropout=0.1")


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    with time_limit(240):
        yield


def told(folder: Path, cold: bool, *words: str) -> tuple[Path, dict[str, Any], str]:
    """Type a command; return its run, the states of its processes, and what it printed."""
    place = fault_place(folder)
    (folder / "telling.py").write_text(STATE)
    answer = place.train(*WORDS, *words, "name=told", cold=cold)
    assert answer.code == 0, answer.text
    states = {path.name: path.read_text() for path in folder.glob("state-*.json")}
    # What differs on purpose: the folder, the mark, the file that it prints to, measured speed.
    names = {str(folder): "FOLDER", place.mark: "MARK", next(folder.glob("output-*")).name: "OUT"}
    for name, text in states.items():
        for word, replacement in names.items():
            text = text.replace(word, replacement)
        states[name] = json.loads(text)
    return place.run("told"), states, answer.text


@pytest.mark.parametrize("words", [(), slow(("-m", "seed=0"))], ids=["one run", "a sweep"])
def test_a_warm_start_is_a_start(tmp_path: Path, words: tuple[str, ...]) -> None:
    run, states, text = told(tmp_path / "cold", True, *words)
    other, other_states, other_text = told(tmp_path / "warm", False, *words)
    assert set(states) == {"state-child.json" if words else "state-main.json"}
    for name, state in states.items():
        for key, value in state.items():
            assert other_states[name][key] == value, f"{name}: {key}"
    assert len(text.splitlines()) == len(other_text.splitlines())
    assert_same(run, other)
