#!/usr/bin/env bash
# The way of a new user on a machine that has nothing: a minimal Debian in a folder (debootstrap), entered by chroot, and
# in it what the README says: fetch the repository, `make demo` with a decision seen on the operator's page, the first
# mesh with its device, `make fast`. Prints what each step took, and what was seen. Root; some minutes, 5 GB.
#
#   scripts/clean_machine.sh [FOLDER]     default: a new one in /var/tmp; it is removed at the end
#
# What is committed is tried. SSL_CERT_FILE, if set, goes along: for networks that show certificates of their own.
# Exit status 1: something did not work; the folder stays, with the logs in its root/.
set -eu

PATH="$PATH:/usr/sbin:/sbin"
REPOSITORY="$(cd "$(dirname "$0")/.." && pwd)"
SUITE=bookworm
MIRROR=http://deb.debian.org/debian

complain() { echo "clean_machine: $*" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || complain "chroot needs root"
command -v debootstrap >/dev/null || complain "needs Debian's debootstrap"
FOLDER="${1:-$(mktemp -d /var/tmp/clean-machine-XXXXXX)}"
[ ! -e "$FOLDER/bin" ] || complain "$FOLDER is in use"

echo "a minimal Debian ($SUITE) in $FOLDER: this takes some minutes, and does not count"
debootstrap --variant=minbase "$SUITE" "$FOLDER" "$MIRROR" >"$FOLDER.log" 2>&1 || complain "debootstrap failed, see $FOLDER.log"
rm -f "$FOLDER.log"
cp /etc/resolv.conf "$FOLDER/etc/"
git clone -q --bare "$REPOSITORY" "$FOLDER/srv/saps.git"
CERTIFICATES=()
if [ -n "${SSL_CERT_FILE:-}" ]; then
    cp -L "$SSL_CERT_FILE" "$FOLDER/root/certificates.pem"
    for name in SSL_CERT_FILE CURL_CA_BUNDLE PIP_CERT; do CERTIFICATES+=("$name=/root/certificates.pem"); done
fi

cat >"$FOLDER/root/tour.sh" <<'TOUR'
set -eu
began=$(date +%s)
step() { printf '%4d s  %s\n' $(($(date +%s) - began)) "$*"; }
wait_for() { for _ in $(seq 600); do eval "$1" && return; sleep 1; done; step "never seen: $1"; return 1; }
cd /root

step "apt-get install git make python3"
{ apt-get update && apt-get install -y git make python3; } >apt.log 2>&1
step "git clone"
git clone -q /srv/saps.git saps
cd saps
step "make demo, which sets up"
make demo ARGS='--stay 20' >/root/demo.log 2>&1 &
demo=$!
address() { sed -n "s/.*operator's page: \(http[^ ]*\).*/\1/p" /root/demo.log; }
wait_for '[ -n "$(address)" ]'
step "the operator's page is there"
wait_for 'curl -s "$(address)v1/decisions" >/root/decisions.json && grep -q "\"reason\"" /root/decisions.json'
step "a decision is on it: $(grep -o '"topic":"[^"]*"\|"reason":"[^"]*"' /root/decisions.json | head -2 | paste -sd ' ')"
wait "$demo"
step "the demo has ended: $(grep -i 'every message' /root/demo.log)"
.venv/bin/pytest -q -n 0 tests/docs/test_tutorial.py -k first_mesh >/root/mesh.log 2>&1
grep -q '1 passed' /root/mesh.log
step "the first mesh, its device and the way of its message, as the README has them"
make fast >/root/fast.log 2>&1
step "make fast: $(tail -1 /root/fast.log | tr -d =)"
TOUR

unshare --mount --pid --fork sh -c '
    mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" || exit 1
    folder=$0; exec chroot "$folder" env -i "$@" bash /root/tour.sh' \
    "$FOLDER" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "${CERTIFICATES[@]}" || { echo "it did not work: see $FOLDER/root/*.log" >&2; exit 1; }
rm -rf --one-file-system "$FOLDER"
