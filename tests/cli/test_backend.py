"""Commands draw into files, whatever the notebook that starts them shows pictures with."""

from __future__ import annotations

import os
import subprocess
import sys


def test_a_backend_that_is_not_here_is_not_asked_for() -> None:
    code = "import lm_experiments.cli, matplotlib.pyplot as p; p.figure(); print(p.get_backend())"
    environment = {**os.environ, "MPLBACKEND": "module://not_installed.backend"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.lower() == "agg\n", done.stderr
