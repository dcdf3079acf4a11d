#!/bin/sh
# Prints the Python that set-up runs with: 3.11 to 3.13, with the modules that a virtual environment needs.
# PYTHON=... chooses one and no other. Every candidate is run, because a name on PATH may be a shim that fails.

usable() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    usable "$PYTHON" && { echo "$PYTHON"; exit 0; }
    echo "setup: error: PYTHON=$PYTHON is not a Python 3.11 to 3.13 that has the modules venv and ensurepip" >&2
    exit 1
fi
# The present environment's own Python first, so that a choice made once holds; not after a set-up that was cut short.
present=.venv/bin/python
[ -e .venv.busy ] && present=
for candidate in $present python3.11 python3.12 python3.13 python3; do
    usable "$candidate" && { echo "$candidate"; exit 0; }
done
echo "setup: error: no Python 3.11 to 3.13 with venv and ensurepip on PATH; install one, or name it: make setup PYTHON=/path/to/python3" >&2
exit 1
