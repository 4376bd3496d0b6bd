"""``saps ca``: what its files say, read back; who may read them; and what it refuses."""

from __future__ import annotations

import re
import stat
import time
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner, Result

from saps.cli.commands import app
from saps.identity.certificates import CertificateError, describe, read_certificates, read_lists
from saps.identity.names import Identity

DAY = 86400.0


def run(*words: object, fails: bool = False) -> Result:
    result = CliRunner().invoke(app, ["ca", *map(str, words)])
    assert result.exit_code == (2 if fails else 0), result.output
    return result


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    run("init", tmp_path / "ca", "--name", "town")
    return tmp_path / "ca"


def certificate(file: Path) -> x509.Certificate:
    return read_certificates(file.read_bytes())[0]


def test_a_certificate_names_the_broker_and_is_signed_and_short_lived(ca: Path) -> None:
    run("issue", "b1", "--cluster", "tokyo/ward1", "--ca", ca, "--host", "10.0.0.1", "--host", "b1.town")
    issued, authority = certificate(ca / "issued" / "b1.pem"), certificate(ca / "authority.pem")
    issued.verify_directly_issued_by(authority)
    shown = describe(issued)
    assert shown.identities == (Identity("tokyo/ward1", "b1"),)
    assert shown.ends - time.time() == pytest.approx(7 * DAY, abs=600)
    hosts = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(map(str, hosts.get_values_for_type(x509.IPAddress))) == ["10.0.0.1"]
    assert hosts.get_values_for_type(x509.DNSName) == ["b1.town"]
    limits = issued.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not limits.ca, "a broker must not be able to vouch for others"


def test_nobody_else_may_read_keys(ca: Path, tmp_path: Path) -> None:
    run("issue", "b1", "--cluster", "c", "--ca", ca)
    run("secret", tmp_path / "secret")
    for file in (ca / "authority.key", ca / "issued" / "b1.pem", tmp_path / "secret"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_revoking_a_broker_revokes_all_that_hold_and_the_list_grows(ca: Path) -> None:
    for broker in ("b1", "b1", "b2"):
        run("issue", broker, "--cluster", "c", "--ca", ca)
    authority = certificate(ca / "authority.pem")
    before = read_lists((ca / "revoked.pem").read_bytes(), [authority])
    assert before.serials == frozenset()
    run("revoke", "b1", "--ca", ca)
    after = read_lists((ca / "revoked.pem").read_bytes(), [authority])
    assert len(after.serials) == 2
    assert describe(certificate(ca / "issued" / "b1.pem")).serial in after.serials
    assert describe(certificate(ca / "issued" / "b2.pem")).serial not in after.serials
    assert all(after.numbers[issuer] > number for issuer, number in before.numbers.items())
    listed = run("list", "--ca", ca).output
    assert [line.count("revoked") for line in listed.splitlines() if re.search(r"\bb1\b", line)] == [1, 1]
    assert [line.count("holds") for line in listed.splitlines() if re.search(r"\bb2\b", line)] == [1]


def test_one_certificate_is_revoked_by_its_number(ca: Path) -> None:
    for _ in range(2):
        run("issue", "b1", "--cluster", "c", "--ca", ca)
    last = describe(certificate(ca / "issued" / "b1.pem")).serial
    run("revoke", "--serial", f"{last.number:x}", "--ca", ca)
    authority = certificate(ca / "authority.pem")
    assert read_lists((ca / "revoked.pem").read_bytes(), [authority]).serials == {last}


def test_a_list_counts_only_if_an_authority_has_signed_it(ca: Path, tmp_path: Path) -> None:
    run("init", tmp_path / "other")
    with pytest.raises(CertificateError, match="none of the authorities"):
        read_lists((tmp_path / "other" / "revoked.pem").read_bytes(), [certificate(ca / "authority.pem")])
    with pytest.raises(CertificateError, match="no revocation list"):
        read_lists(b"", [certificate(ca / "authority.pem")])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("issue", "b 1", "--cluster", "c"), "'b 1' must be 1 to 63 letters"),
        (("issue", "b1", "--cluster", "a//b"), "level ''"),
        (("issue", "b1", "--cluster", "c", "--days", "1", "--hours", "1"), "--days or --hours"),
        (("issue", "b1", "--cluster", "c", "--hours", "90000"), "outlive the authority"),
        (("revoke", "b9"), "has issued nothing to b9"),
        (("revoke",), "name a broker, or --serial"),
    ],
)
def test_what_cannot_be_done_is_one_line(ca: Path, words: tuple[str, ...], said: str) -> None:
    result = run(*words, "--ca", ca, fails=True)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_authority_is_not_overwritten_and_must_be_there(ca: Path, tmp_path: Path) -> None:
    assert "holds an authority already" in run("init", ca, fails=True).stderr
    assert "saps ca init" in run("issue", "b1", "--cluster", "c", "--ca", tmp_path, fails=True).stderr
    run("secret", tmp_path / "secret")
    assert "is there already" in run("secret", tmp_path / "secret", fails=True).stderr


def test_certificates_for_mqtt_are_no_brokers_identity(ca: Path) -> None:
    run("server", "b1", "--host", "127.0.0.1", "--host", "b1.example", "--ca", ca)
    run("client", "gate-7", "--ca", ca)
    server, client = (certificate(ca / "issued" / f"{name}.pem") for name in ("b1.server", "gate-7.client"))
    assert describe(server).identities == describe(client).identities == ()
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["b1.example"]
    usage = client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert "gate-7" in run("list", "--ca", ca).stdout
    run("revoke", "gate-7", "--ca", ca)
    revoked = read_lists((ca / "revoked.pem").read_bytes(), [certificate(ca / "authority.pem")])
    assert {serial.number for serial in revoked.serials} == {client.serial_number}
