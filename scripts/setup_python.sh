#!/usr/bin/env bash
# Creates .venv with any Python >= 3.11 and installs the project and its development tools into it: with uv, from
# the lock file; if uv cannot be had or fails, with plain pip, from the ranges in pyproject.toml.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if fits "$candidate" && "$candidate" -c 'import ensurepip' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: no Python >= 3.11 with venv found; install it, or name one: make setup PYTHON=/path/to/python" >&2
    return 1
}

if ! fits "$VENV/bin/python"; then
    python="$(find_python)"
    rm -rf "$VENV"
    "$python" -m venv "$VENV"
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1 UV_PYTHON_DOWNLOADS=never
unset VIRTUAL_ENV

with_uv() {
    "$VENV/bin/python" -m uv --version >/dev/null 2>&1 || "$VENV/bin/python" -m pip install -q 'uv>=0.5' || return
    # --inexact: uv itself stays in the environment.
    "$VENV/bin/python" -m uv sync --frozen --all-extras --inexact --quiet --python "$VENV/bin/python"
}

with_pip() {
    "$VENV/bin/python" - <<'PYTHON' >"$VENV/requirements.txt"
import tomllib

with open("pyproject.toml", "rb") as file:
    told = tomllib.load(file)
print(f"--editable .[{','.join(told['project']['optional-dependencies'])}]", *told["dependency-groups"]["dev"], sep="\n")
PYTHON
    "$VENV/bin/python" -m pip install -q -r "$VENV/requirements.txt"
}

echo "setup: installing Python packages into $VENV, which takes some minutes"
with_uv || {
    echo "setup: uv did not work here; installing with pip" >&2
    with_pip
}
