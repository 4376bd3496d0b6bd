#!/usr/bin/env bash
# Builds what a release has, in dist/: the wheel with compiled modules, saps_VERSION_ARCH.deb, and the bill of materials
# of the package (CycloneDX), as `make deb`.
#
# The package is a virtual environment in /opt/saps with the versions of uv.lock, for Debian's Python of the minor
# version that .venv has. EXTRAS are those of pyproject.toml; "monitoring" makes it five times as large. Needs dpkg-deb,
# a C compiler, and PyPI.
set -eu
cd "$(dirname "$0")/.."

BIN=.venv/bin
OUT=dist
EXTRAS="${EXTRAS-controller tracing upstream}"
export UV_PYTHON_DOWNLOADS=never
unset VIRTUAL_ENV

version=$("$BIN/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
tag=$(git describe --exact-match --tags --match 'v*' 2>/dev/null || true)
if [ -n "$tag" ] && [ "$tag" != "v$version" ]; then
    echo "build_deb: the tag $tag is not of version $version (pyproject.toml)" >&2
    exit 1
fi
read -r python next < <("$BIN/python" -c 'import sys; a, b = sys.version_info[:2]; print(f"{a}.{b} {a}.{b + 1}")')
arch=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
site=$root/opt/saps/lib/python$python/site-packages
mkdir -p "$OUT" "$site" "$root/opt/saps/bin" "$root/DEBIAN"

extras=()
for extra in $EXTRAS; do extras+=(--extra "$extra"); done
"$BIN/uv" export --quiet --frozen --no-dev --no-emit-project "${extras[@]}" >"$work/requirements.txt"
"$BIN/uv" export --quiet --frozen --no-dev --preview-features sbom-export --format cyclonedx1.5 "${extras[@]}" \
    >"$OUT/saps-$version.cdx.json"

HATCH_BUILD_HOOKS_ENABLE=true "$BIN/python" -m hatchling build -t wheel -d "$work/wheel" >/dev/null 2>&1
wheel=$(echo "$work"/wheel/*.whl)
# Copies, not links into the cache: they are stripped below.
install=("$BIN/uv" pip install --quiet --link-mode copy --python "$BIN/python" --target "$site")
"${install[@]}" --require-hashes -r "$work/requirements.txt"
"${install[@]}" --no-deps "$wheel"
cp "$wheel" "$OUT"

# The environment, as `python3 -m venv /opt/saps` would make it there, without pip.
rm -rf "$site/bin" "$site/share" "$site"/*/tests "$site/.lock"
find "$root" -name __pycache__ -type d -prune -exec rm -rf {} +
find "$site" -name '*.so' -exec strip --strip-unneeded {} +
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$python" >"$root/opt/saps/pyvenv.cfg"
ln -s "/usr/bin/python$python" "$root/opt/saps/bin/python"
cat >"$root/opt/saps/bin/saps" <<'END'
#!/opt/saps/bin/python
import sys

from saps.cli import main

sys.exit(main())
END
chmod 755 "$root/opt/saps/bin/saps"

doc=$root/usr/share/doc/saps
mkdir -p "$root/usr/bin" "$root/lib/systemd/system" "$root/usr/share/man/man1" "$doc"
ln -s /opt/saps/bin/saps "$root/usr/bin/saps"
cp deploy/systemd/*.service "$root/lib/systemd/system/"
gzip -9n <docs/saps.1 >"$root/usr/share/man/man1/saps.1.gz"
cp LICENSE "$doc/copyright"
cp "$OUT/saps-$version.cdx.json" "$doc/"
cp -r deploy/config "$doc/examples"
cp -r deploy/systemd/saps-broker@.service.d deploy/prometheus-rules.yml "$doc/examples/"

cat >"$root/DEBIAN/control" <<END
Package: saps
Version: $version
Architecture: $arch
Maintainer: The SAPS project <saps@localhost>
Depends: python3 (>= $python~), python3 (<< $next~), passwd
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Section: net
Priority: optional
Description: publish/subscribe brokers without a master
 MQTT brokers at many sites form one mesh: a Skip Graph overlay between sites, MQTT 3.1.1 and 5.0 at the edge, OpenFlow
 multicast where there are switches. Put a configuration into /etc/saps/NAME.toml (/usr/share/doc/saps/examples), then
 systemctl enable --now saps-broker@NAME.
END

cat >"$root/DEBIAN/postinst" <<'END'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    getent passwd saps >/dev/null ||
        useradd --system --user-group --no-create-home --home-dir /var/lib/saps --shell /usr/sbin/nologin saps
    install -d -o root -g saps -m 0750 /etc/saps
    install -d -o saps -g saps -m 0700 /var/lib/saps
    /opt/saps/bin/python -m compileall -q -j 0 /opt/saps/lib || true
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
fi
END
# Running brokers are left alone: an upgrade drains one after the other (docs/running.md).
cat >"$root/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
find /opt/saps -name __pycache__ -type d -prune -exec rm -rf {} +
END
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
chmod -R u=rwX,go=rX "$root"

deb=$OUT/saps_${version}_$arch.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
echo "$deb $OUT/$(basename "$wheel") $OUT/saps-$version.cdx.json"
