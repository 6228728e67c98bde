# Sourced by tools/test and tools/demo: makes the environment .venv and puts it first on PATH.
#
#   environment NAME EXTRAS GROUP...   the package (editable) with EXTRAS, and these dependency groups of pyproject.toml
#   environment_over FOLDER WHAT ARG...  another one in FOLDER that sees all of .venv, and beside it WHAT, by these
#                                      arguments of pip; status 1 where it cannot be installed
#   keep_bytecode FOLDER               where Python keeps what it compiles; with an environment, in .venv
#
# Variables that choose:
#   PYTHON                   the interpreter to build on (default python3); 3.11 or newer
#   SHARDSTREAM_TORCH_INDEX  the package index to take torch's wheels from, where python3 brings no torch of its own
#
# A second run finds the stamp of the first and does nothing.

AZURITE=3.35.0

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv

say() { if [ -t 1 ]; then printf '\033[1m%s\033[0m\n' "$*"; else printf '%s\n' "$*"; fi; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

_has_module() { "$1" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$2"; }

_need_venv_module() {
  _has_module "$PYTHON" ensurepip && return
  local version
  version=$("$PYTHON" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing the system package $version"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$version" >/dev/null ||
      { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$version" >/dev/null; } ||
      die "could not install $version; install it and try again"
  else
    die "$PYTHON cannot make environments: install the system package $version (apt-get install $version) and try again"
  fi
}

_make_venv() {
  local options=() inside=
  [ -x "$VENV/bin/python" ] && "$VENV/bin/python" -c '' 2>/dev/null && return
  _need_venv_module
  if _has_module "$PYTHON" torch; then
    # A torch that is already there, perhaps built for this machine's GPU, is better than any we could install.
    options=(--system-site-packages)
    inside=$("$PYTHON" -c 'import sys, sysconfig; sys.prefix != sys.base_prefix and print(sysconfig.get_path("purelib"))')
  fi
  say "making the environment .venv"
  "$PYTHON" -m venv --clear "${options[@]}" "$VENV"
  # When $PYTHON is an environment itself, the option above looks past it, to the Python that it was made from.
  [ -z "$inside" ] || printf '%s\n' "$inside" >"$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/outer.pth"
}

# Without compiling every module of every package: Python compiles those that are imported, when they are.
_pip_install() { "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }

_install_torch() {
  local index=()
  _has_module "$VENV/bin/python" torch && return
  [ -z "${SHARDSTREAM_TORCH_INDEX:-}" ] || index=(--index-url "$SHARDSTREAM_TORCH_INDEX")
  say "installing $(grep '^torch' "$ROOT/tools/constraints-torch.txt")"
  _pip_install "${index[@]}" -r "$ROOT/tools/constraints-torch.txt"
}

# Azurite speaks Azure Blob Storage to the tests, which skip those parts where npm is missing.
_install_azurite() {
  [ "$(cat "$ROOT/.node/version" 2>/dev/null)" = "$AZURITE" ] && return
  if ! command -v npm >/dev/null; then
    say "npm was not found: tests that need an Azure server will be skipped"
    return
  fi
  say "installing azurite $AZURITE"
  mkdir -p "$ROOT/.node"
  # Without a package.json of its own, npm would look for one in the folders above.
  [ -e "$ROOT/.node/package.json" ] || printf '{"private": true}\n' >"$ROOT/.node/package.json"
  # Where a registry does not answer, npm waits much longer than its own limits say.
  local limit=()
  ! command -v timeout >/dev/null || limit=(timeout 300)
  if "${limit[@]}" npm install --prefix "$ROOT/.node" --no-audit --no-fund --no-save --ignore-scripts --loglevel=error \
    --fetch-timeout=60000 --fetch-retries=1 "azurite@$AZURITE" >/dev/null; then
    printf '%s' "$AZURITE" >"$ROOT/.node/version"
  else
    say "azurite could not be installed: tests that need an Azure server will be skipped"
  fi
}

# Interpreters that start by the hundred, or while they are timed, keep what they compile, also where bytecode is forbidden,
# as in many images of containers: each of them would compile all that it imports.
keep_bytecode() {
  unset PYTHONDONTWRITEBYTECODE
  export PYTHONPYCACHEPREFIX=$1
}

environment() {
  local name=$1 extras=$2 groups=("${@:3}") stamp fingerprint
  PYTHON=${PYTHON:-python3}
  command -v "$PYTHON" >/dev/null || die "$PYTHON was not found; install Python 3.11 or newer, or set PYTHON"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$PYTHON" --version) is too old; install Python 3.11 or newer, or set PYTHON to one"
  stamp=$VENV/.shardstream-$name
  fingerprint=$(cat "$ROOT"/pyproject.toml "$ROOT"/tools/constraints*.txt "$ROOT/tools/environment.sh" | sha256sum)
  fingerprint="$fingerprint $ROOT $extras ${groups[*]}"
  # One at a time, should tools/demo and tools/test start together. The lock is on the folder: no file to leave behind.
  exec 9<"$ROOT/tools"
  flock 9
  if [ "$(cat "$stamp" 2>/dev/null)" != "$fingerprint" ] || ! "$VENV/bin/python" -c '' 2>/dev/null; then
    local servers=
    if [[ " ${groups[*]} " == *" test "* ]]; then
      _install_azurite & # beside Python's packages: it takes as long, and another registry
      servers=$!
    fi
    _make_venv
    _install_torch
    say "installing what '$name' needs"
    # Whichever torch is there stays.
    "$VENV/bin/python" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >"$VENV/torch.txt"
    "$VENV/bin/python" "$ROOT/tools/requirements.py" "${groups[@]}" >"$VENV/requirements-$name.txt"
    _pip_install -c "$VENV/torch.txt" -c "$ROOT/tools/constraints.txt" \
      -r "$VENV/requirements-$name.txt" -e "$ROOT[$extras]"
    [ -z "$servers" ] || wait "$servers"
    printf '%s' "$fingerprint" >"$stamp"
  fi
  flock -u 9
  exec 9<&-
  export PATH="$VENV/bin:$PATH" VIRTUAL_ENV="$VENV"
  keep_bytecode "$VENV/bytecode"
}

# Torch too is seen in the environment of the tests, or wherever that looks: what is there is not fetched anew, whichever
# build of torch it is. Of what both have, the one in FOLDER comes first.
environment_over() {
  local folder=$1 what=$2 stamp
  stamp="$VENV $* $(cat "$ROOT"/tools/constraints*.txt | sha256sum)"
  [ "$(cat "$folder/.shardstream" 2>/dev/null)" != "$stamp" ] || return 0
  say "installing $what"
  # Where a caller asks how this ended, set -e does not end it.
  "$VENV/bin/python" -m venv --clear "$folder" && "$VENV/bin/python" -c '
import sys
print("import site;", *(f"site.addsitedir({path!r});" for path in sys.path if path.endswith("-packages")))
' >"$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests.pth" &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -c "$VENV/torch.txt" "${@:3}" || return 1
  printf '%s' "$stamp" >"$folder/.shardstream"
}
