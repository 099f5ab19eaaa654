#!/bin/sh
# Compares the names and signatures of npusim's twin with the real pyxrt of Debian 13 backports, in a chroot that is kept.
# Needs root, mmdebstrap and the network. The chroot's place: $XDNA_CHROOT, or one in the cache folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=${XDNA_CHROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/xdna-dictate/trixie}
if ! [ -e "$root/usr/bin/python3" ]; then
    command -v mmdebstrap >/dev/null || { echo "install mmdebstrap first" >&2; exit 1; }
    mkdir -p "$(dirname "$root")"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' | head -n 1) # the one this machine uses
    mmdebstrap --mode=root --variant=apt --aptopt='APT::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --include=python3,python3-numpy trixie "$root" \
        "deb [signed-by=$keys] $mirror trixie main" \
        "deb [signed-by=$keys] $mirror trixie-backports main"
    chroot "$root" apt-get update -qq
    chroot "$root" apt-get install -qq -y --no-install-recommends -t trixie-backports python3-xrt
fi
cp "$here/pyxrt_api.py" "$here/../../designs/npusim/pyxrt-2.25-api.json" "$root/root/"
chroot "$root" dpkg-query -W -f '${Package} ${Version}\n' python3-xrt
chroot "$root" python3 /root/pyxrt_api.py pyxrt /root/pyxrt-2.25-api.json
