#!/bin/sh
# Install Windlass from this source into a new environment: sh deploy/build.sh PREFIX [EXTRA...]
# Every file that is downloaded is checked by its hash in requirements/. What builds the package is
# not installed.
set -eu
prefix=$1
shift
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1

python3 tools/select_locked.py "$@" > "$work/selected.txt"
python3 -m venv "$work/build"
pip="$work/build/bin/pip"
"$pip" install --require-hashes --only-binary :all: --requirement requirements/run.txt
"$pip" wheel --no-deps --no-build-isolation --wheel-dir "$work" .

# The environment has no pip of its own: nothing is to be installed into it later.
python3 -m venv --clear --without-pip "$prefix"
"$pip" --python "$prefix/bin/python" install --require-hashes --only-binary :all: \
    --requirement "$work/selected.txt"
"$pip" --python "$prefix/bin/python" install --no-deps --no-index "$work"/windlass-*.whl
"$pip" --python "$prefix/bin/python" check
