#!/bin/sh
# Makes sure that PYTHON ($1) is new enough and can make virtual environments.
# Installs what is missing when run as root on a system it knows, otherwise says what to type.
set -eu
python=${1:-python3}

usable() {
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

usable && exit 0

if [ "$(id -u)" = 0 ]; then
    if command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv
    elif command -v dnf >/dev/null; then
        dnf install -q -y python3
    elif command -v pacman >/dev/null; then
        pacman -Sy --noconfirm --needed python
    fi
    usable && exit 0
fi

cat >&2 <<EOF
xdna-dictate needs Python 3.11 or newer with its venv module. Install it, then run make again:
  Debian, Ubuntu:  sudo apt-get install python3 python3-venv
  Fedora:          sudo dnf install python3
  Arch:            sudo pacman -S python
EOF
exit 1
