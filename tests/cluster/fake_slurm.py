"""Stand-ins for the commands of SLURM: jobs are processes of this machine, one at a time each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMMANDS = ("sbatch", "srun", "sacct", "scontrol")
SBATCH = '''#!{python}
"""Start every task of a job's array as a process, again where it was queued again."""
import os, re, subprocess, sys, time
from pathlib import Path

folder = Path(os.environ["FAKE_SLURM"])
script = Path(sys.argv[-1])
text = script.read_text()
(folder / "script.sh").write_text(text)
tasks = re.search(r"#SBATCH --array=0-(\\d+)", text)
job = "4711"

def run(task):
    names = ("JOB_NUM_NODES", "NTASKS", "NNODES")
    numbers = {{f"SLURM_{{name}}": "1" for name in names}}
    numbers |= {{f"SLURM_{{name}}": "0" for name in ("NODEID", "PROCID", "LOCALID")}}
    ids = {{"SLURM_JOB_ID": f"{{job}}{{task}}", "SLURM_ARRAY_JOB_ID": job}}
    ids["SLURM_ARRAY_TASK_ID"] = str(task)
    environment = {{**os.environ, **numbers, **ids, "SLURM_JOB_NODELIST": "localhost"}}
    again = True
    while again:
        subprocess.run(["bash", str(script)], env=environment)
        again = (folder / f"requeue-{{job}}_{{task}}").exists()
        (folder / f"requeue-{{job}}_{{task}}").unlink(missing_ok=True)
    (folder / f"ended-{{job}}_{{task}}").touch()

print(f"Submitted batch job {{job}}", flush=True)
if os.fork() == 0:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
        os.open(os.devnull, os.O_RDWR)
    children = []
    for task in range(int(tasks[1]) + 1 if tasks else 1):
        pid = os.fork()
        if pid == 0:
            run(task)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    os._exit(0)
'''
SRUN = '''#!{python}
"""Run the command after the options, its output where they say."""
import os, sys

words = sys.argv[1:]
path = words[words.index("--output") + 1]
for name, key in (("%A", "ARRAY_JOB_ID"), ("%a", "ARRAY_TASK_ID"), ("%t", "PROCID")):
    path = path.replace(name, os.environ["SLURM_" + key])
command = words[words.index("--output") + 2 :]
descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(descriptor, 1)
os.dup2(descriptor, 2)
os.execvp(command[0], command)
'''
SACCT = '''#!{python}
"""Tell which tasks run."""
import os, re
from pathlib import Path

folder = Path(os.environ["FAKE_SLURM"])
script = (folder / "script.sh").read_text()
print("JobID|State|NodeList")
for task in range(int(re.search(r"#SBATCH --array=0-(\\d+)", script)[1]) + 1):
    ended = (folder / f"ended-4711_{{task}}").exists()
    print(f"4711_{{task}}|{{'COMPLETED' if ended else 'RUNNING'}}|localhost")
'''
SCONTROL = '''#!{python}
"""Note that a job is to be queued again."""
import os, sys
from pathlib import Path

assert sys.argv[1] == "requeue"
(Path(os.environ["FAKE_SLURM"]) / f"requeue-{{sys.argv[2]}}").touch()
'''
TEXTS = dict(zip(COMMANDS, (SBATCH, SRUN, SACCT, SCONTROL), strict=True))


def install(folder: Path) -> dict[str, str]:
    """Write the commands into a folder; return the environment in which they are found."""
    commands, notes = folder / "bin", folder / "slurm"
    for path in (commands, notes):
        path.mkdir()
    for name, text in TEXTS.items():
        path = commands / name
        path.write_text(text.format(python=sys.executable))
        path.chmod(0o755)
    return {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}", "FAKE_SLURM": str(notes)}
