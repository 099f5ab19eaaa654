#!/bin/sh
# system-packages.sh python PYTHON   makes sure that PYTHON is new enough and can make virtual environments
# system-packages.sh tests           makes sure that the tests find a message bus, a sound server and C++ compilers
# Installs what is missing when run as root on a system it knows, otherwise says what to type.
set -eu
what=$1
python=${2:-python3}

usable() {
    case $what in
    python) "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' ;;
    tests)
        for program in dbus-daemon dbus-send gdbus busctl systemd-analyze pulseaudio pactl paplay parec sox g++ clang++; do
            command -v $program || return 1
        done
        ldconfig -p | grep -q libportaudio
        ;;
    esac >/dev/null 2>&1
}

case $what in
python)
    debian="python3 python3-venv"
    fedora="python3"
    arch="python"
    needs="Python 3.11 or newer with its venv module"
    ;;
tests)
    debian="dbus dbus-bin libglib2.0-bin systemd pulseaudio pulseaudio-utils libportaudio2 libasound2-plugins sox g++ clang"
    fedora="dbus-daemon dbus-tools glib2 systemd pulseaudio pulseaudio-utils portaudio alsa-plugins-pulseaudio sox gcc-c++ clang"
    arch="dbus glib2 systemd pulseaudio portaudio alsa-plugins sox gcc clang"
    needs="a message bus, a sound server (both private, nothing of yours is touched) and C++ compilers for its tests"
    ;;
esac

usable && exit 0

if [ "$(id -u)" = 0 ]; then
    if command -v apt-get >/dev/null; then
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $debian
    elif command -v dnf >/dev/null; then
        # shellcheck disable=SC2086
        dnf install -q -y $fedora
    elif command -v pacman >/dev/null; then
        # shellcheck disable=SC2086
        pacman -Sy --noconfirm --needed $arch
    fi
    usable && exit 0
fi

cat >&2 <<EOF
xdna-dictate needs $needs. Install it, then run make again:
  Debian, Ubuntu:  sudo apt-get install $debian
  Fedora:          sudo dnf install $fedora
  Arch:            sudo pacman -S $arch
EOF
exit 1
