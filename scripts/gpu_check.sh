#!/usr/bin/env bash
# All checks that need a GPU, in under eight minutes: a page and a file of numbers in gpu_check/.
#   bash scripts/gpu_check.sh [--cpu] [--out FOLDER]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-$root/.venv/bin/python}" -m lm_experiments.benchmark.gpu_check "$@"
