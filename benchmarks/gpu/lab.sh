#!/usr/bin/env bash
# The kernel lab on one GPU, in under 8 minutes: correctness against the plain path, roofs, and the batches of the sweeps.
# It needs the source tree, and a Python with torch, triton, numpy, numba, scipy, pydantic, rich and pyarrow: no vLLM, no
# Ray, no network.
#
# IT HAS NOT BEEN RUN ON A GPU YET. What has been run is its plumbing on a CPU:
#
#     benchmarks/gpu/lab.sh --device cpu --quick
#
# On a GPU:
#
#     benchmarks/gpu/lab.sh [--out FOLDER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec timeout --signal=TERM 478 "${PYTHON:-python3}" -m benchmarks.gpu.lab_gpu "$@"
