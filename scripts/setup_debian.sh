#!/usr/bin/env bash
# Installs the Debian packages that the demo, the tests and the benchmarks use, if they are missing: Python's venv, a C
# compiler, curl, mosquitto and its clients, nats-server, PostgreSQL, nodejs and Chromium, Prometheus and its MQTT
# exporter, Open vSwitch, iproute2, nftables, Java 17 and libfaketime.
#
# Only with apt-get as root or with passwordless sudo; otherwise it says what is missing and ends well, and the
# tests that need it are skipped. The brokers are wanted as programs, not as services: none is left running by an
# installation of ours, so that port 1883 stays free. Exit status 3: something is still missing.
set -u

PATH="$PATH:/usr/sbin:/sbin"
PYTHON="${PYTHON:-python3}"

has() { command -v "$1" >/dev/null 2>&1; }

missing=()
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
has "${CC:-cc}" || missing+=(gcc libc6-dev)
"$PYTHON" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    missing+=(python3-dev)
has curl || missing+=(curl)
has promtool || missing+=(prometheus)
has prometheus-mqtt-exporter || missing+=(prometheus-mqtt-exporter)
has mosquitto || missing+=(mosquitto)
{ has mosquitto_pub && has mosquitto_sub; } || missing+=(mosquitto-clients)
has nats-server || missing+=(nats-server)
compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || missing+=(postgresql)
has node || missing+=(nodejs)
has chromium || has chromium-browser || has google-chrome || missing+=(chromium)
has ovs-vswitchd || missing+=(openvswitch-switch)
{ has ip && has tc; } || missing+=(iproute2)
has nft || missing+=(nftables)
has java || missing+=(openjdk-17-jre-headless)
compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null || missing+=(libfaketime)
[ "${#missing[@]}" -eq 0 ] && exit 0

give_up() {
    echo "setup: $1; missing: ${missing[*]}" >&2
    echo "setup: tests, benchmarks and set-up steps that need them are skipped. To install them yourself:" >&2
    echo "setup:   sudo apt-get install ${missing[*]}" >&2
    exit 3
}

has apt-get || give_up "this is not a Debian system"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    { has sudo && sudo -n true 2>/dev/null; } || give_up "not root, and no passwordless sudo"
    as_root=(sudo -n)
fi

# invoke-rc.d asks policy-rc.d whether a package may start its service; 101 means no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod +x "$policy"
fi

echo "setup: installing Debian packages, which takes some minutes: ${missing[*]}"
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends)
"${install[@]}" "${missing[@]}" </dev/null >/dev/null 2>&1 || {
    "${as_root[@]}" apt-get update -qq </dev/null || true
    "${install[@]}" "${missing[@]}" </dev/null >/dev/null || give_up "apt-get failed"
}

# Nor should our installation start a broker at the next boot.
if has systemctl; then
    for service in mosquitto nats-server openvswitch-switch postgresql prometheus prometheus-mqtt-exporter; do
        case " ${missing[*]} " in
            *" $service "*) "${as_root[@]}" systemctl disable --quiet "$service" 2>/dev/null || true ;;
        esac
    done
fi
