"""Decodes headers of the PROXY protocol, by which a load balancer reports a client's address.

Versions 1 and 2 are known (HAProxy, ``doc/proxy-protocol.txt`` of 2020/03/05). Any bytes give a header or raise a
`ProxyError`.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import NamedTuple

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
"""The first 12 bytes of a header of version 2 (section 2.2)."""
BEGINNING = len(SIGNATURE)
"""Number of bytes that every header of either version has."""
FIXED = 16
"""Bytes of a version 2 header before the addresses."""
MOST_TEXT = 107
"""Most bytes of a version 1 header, with its CR LF (section 2.1)."""
MOST_BINARY = 4096
"""Most bytes of an accepted version 2 header. Load balancers send some hundred bytes."""

_PLACES = {0x11: 4, 0x21: 16}
"""By address family and protocol (TCP over IPv4, TCP over IPv6): the bytes of an address."""
_TLS, _COMMON_NAME = 0x20, 0x22
"""The types PP2_TYPE_SSL and PP2_SUBTYPE_SSL_CN (section 2.2.6)."""
_HAS_CERTIFICATE = 0x06
"""The flags PP2_CLIENT_CERT_CONN and PP2_CLIENT_CERT_SESS."""


class ProxyError(ValueError):
    """The bytes are no valid header."""


class Proxied(NamedTuple):
    """The client that a header describes."""

    host: str | None = None
    """The client's IP address; None if the header has none, as in a health check of the load balancer itself."""
    port: int = 0
    common_name: str | None = None
    """The common name of the client's certificate, if the load balancer has verified one."""


def text_header(line: bytes) -> Proxied:
    """Decode a header of version 1 with its CR LF. Raises `ProxyError`."""
    if len(line) > MOST_TEXT or not line.endswith(b"\r\n"):
        raise ProxyError("a header of version 1 that has no end")
    words = line[:-2].decode("latin-1").split(" ")
    if words[:2] == ["PROXY", "UNKNOWN"]:
        return Proxied()
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise ProxyError(f"a header of version 1 that says {line[:60]!r}")
    version = 4 if words[1] == "TCP4" else 6
    for word in words[2:4]:
        if _version(word) != version:
            raise ProxyError(f"{word!r} is no address of {words[1]}")
    for word in words[4:]:
        if not (word.isascii() and word.isdigit()) or (word[0] == "0" and word != "0") or int(word) > 65535:
            raise ProxyError(f"{word!r} is no port")
    return Proxied(words[2], int(words[4]))


def binary_size(start: bytes) -> int:
    """Return the size in bytes of the version 2 header that begins with the `FIXED` bytes `start`.

    Raises `ProxyError` for another signature or version, and above `MOST_BINARY`.
    """
    size = FIXED + int.from_bytes(start[14:16])
    if start[:BEGINNING] != SIGNATURE or start[12] >> 4 != 2:
        raise ProxyError(f"no header of the PROXY protocol: {start[:FIXED]!r}")
    if size > MOST_BINARY:
        raise ProxyError(f"a header of {size} bytes")
    return size


def binary_header(header: bytes) -> Proxied:
    """Decode a whole header of version 2. Raises `ProxyError`."""
    if len(header) < FIXED or len(header) != binary_size(header):
        raise ProxyError("a header of version 2 that is cut off")
    command, family = header[12] & 0x0F, header[13]
    if command > 1 or family >> 4 > 3 or family & 0x0F > 2:
        raise ProxyError(f"command {command}, family 0x{family:02x}")
    width = _PLACES.get(family)
    if command == 0 or width is None:  # a health check, or a client that is not on TCP
        return Proxied()
    end = FIXED + 2 * width + 4
    if len(header) < end:
        raise ProxyError("a header of version 2 that is too short for its addresses")
    host = str(ip_address(header[FIXED : FIXED + width]))
    return Proxied(host, int.from_bytes(header[end - 4 : end - 2]), _common_name(_values(header[end:])))


def network_fault(text: str) -> str | None:
    """Return why the text is no IP address or network, or None if it is valid."""
    try:
        ip_network(text)
    except ValueError as error:
        return str(error)
    return None


def _version(word: str) -> int:
    try:
        return ip_address(word).version
    except ValueError:
        return 0


def _values(data: bytes) -> dict[int, bytes]:
    """Return the values by type (type-length-value, section 2.2.6). Raises `ProxyError`."""
    found, pos = {}, 0
    while pos < len(data):
        end = pos + 3 + int.from_bytes(data[pos + 1 : pos + 3])
        if end > len(data) or len(data) - pos < 3:
            raise ProxyError("a header of version 2 with a value that is cut off")
        found[data[pos]] = data[pos + 3 : end]
        pos = end
    return found


def _common_name(values: dict[int, bytes]) -> str | None:
    tls = values.get(_TLS, b"")
    if len(tls) < 5 or not tls[0] & _HAS_CERTIFICATE or any(tls[1:5]):
        return None
    try:
        return _values(tls[5:]).get(_COMMON_NAME, b"").decode() or None
    except UnicodeDecodeError:
        raise ProxyError("a common name that is not UTF-8") from None
