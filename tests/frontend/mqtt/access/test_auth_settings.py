"""The settings of access control: passed on unaltered, and refused where they cannot be used together."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from saps.config import Address, BrokerSettings, SettingError
from saps.config.access import AuthSettings, JwtSettings, ProxySettings, TlsSettings
from saps.config.sources_io import load
from saps.frontend.mqtt.access.options import AuthOptions, JwtOptions, ProxyOptions, TlsOptions

TLS = {"listen": (Address("127.0.0.1", 8883),), "certificate": "c.pem"}


def test_the_frontend_gets_its_settings_unaltered() -> None:
    assert AuthSettings.__struct_fields__ == AuthOptions.__struct_fields__
    assert AuthSettings().options() == AuthOptions()
    assert JwtSettings.__struct_fields__ == JwtOptions.__struct_fields__
    assert AuthSettings(jwt=JwtSettings(keys="k")).options().jwt == JwtOptions(keys="k")
    assert set(ProxySettings.__struct_fields__) == {"listen", *ProxyOptions.__struct_fields__}
    assert ProxySettings().options() == ProxyOptions()
    assert set(TlsSettings.__struct_fields__) == {"listen", *TlsOptions.__struct_fields__}
    assert TlsSettings(certificate="c.pem").options() is None
    options = TlsSettings(**TLS, key="k", client_ca="a", client_certificates="required", user_from="san").options()  # type: ignore[arg-type]
    assert options == TlsOptions(
        certificate="c.pem", key="k", client_ca="a", client_certificates="required", user_from="san"
    )


@pytest.mark.parametrize(
    ("mqtt", "tls", "exposed"),
    [
        ("127.0.0.1", (), False),
        ("::1", ("127.0.0.2", "localhost"), False),
        ("0.0.0.0", (), True),
        ("127.0.0.1", ("10.0.0.1",), True),
        ("broker.example", (), True),
    ],
)
def test_a_broker_is_exposed_if_any_listener_is(mqtt: str, tls: tuple[str, ...], exposed: bool) -> None:
    listen = tuple(Address(host, 8883) for host in tls)
    settings = BrokerSettings(name="b", mqtt=Address(mqtt, 1883), tls=TlsSettings(listen=listen))
    assert settings.exposed() == exposed
    proxied = msgspec.structs.replace(settings, proxy=ProxySettings(listen=(Address("127.0.0.1", 1884),)))
    assert proxied.exposed()  # its clients are elsewhere


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tls]\nlisten = ['a:1']", "tls.listen ({file}:2): needs tls.certificate"),
        ("[tls]\nlisten = 'x'", "tls.listen ({file}:2): 'x' is not an address"),
        ("[tls]\nclient_certificates = 'required'", "tls.client_certificates ({file}:2): needs tls.client_ca"),
        (
            "[tls]\nlisten = ['127.0.0.1:1883']\ncertificate = 'c'",
            "tls.listen ({file}:2): 127.0.0.1:1883 is the address of mqtt",
        ),
        (
            "[tls]\nlisten = ['127.0.0.1:7300']\ncertificate = 'c'",
            "tls.listen ({file}:2): 127.0.0.1:7300 is the address of ov",
        ),
        (
            "[tls]\nminimum_version = '1.1'",
            "tls.minimum_version ({file}:2): '1.1' does not fit: expected '1.2' or '1.3'",
        ),
        ("[auth]\nanonymous = true", "auth.anonymous ({file}:2): True does not fit: expected 'loopback' or 'always'"),
        ("[tls]\nuser_pattern = '(a'", "tls.user_pattern ({file}:2): '(a' is not a regular expression"),
        ("[proxy]\ntrusted = ['10.0.0.1/8']", "proxy.trusted ({file}:2): 10.0.0.1/8 has host bits set"),
        ("[proxy]\nlisten = ['127.0.0.1:1883']", "proxy.listen ({file}:2): 127.0.0.1:1883 is taken by mqtt"),
        ("[proxy]\nlisten = ['127.0.0.1:1884']\ntls = true", "proxy.tls ({file}:3): needs tls.certificate"),
        ("[proxy]\ntls = true\ncertificates = true", "proxy.certificates ({file}:3): is for load balancers that speak"),
        (
            "[auth.jwt]\nkeys = 'http://id.city/jwks'",
            "auth.jwt.keys ({file}:2): 'http://id.city/jwks' must be https://",
        ),
        ("[auth.jwt]\nkeys = 'https:///jwks'", "auth.jwt.keys ({file}:2): 'https:///jwks' names no host"),
        ("[auth]\nhash_queue = 0", "auth.hash_queue ({file}:2): 0 does not fit"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "saps.toml"
    file.write_text(text)
    with pytest.raises(SettingError) as caught:
        load({"name": "b"}, {}, file)
    assert str(caught.value).startswith(message.format(file=file))


def test_the_settings_can_be_given_everywhere() -> None:
    environ = {
        "SAPS_TLS__LISTEN": "0.0.0.0:8883,[::]:8883",
        "SAPS_TLS__CERTIFICATE": "c",
        "SAPS_AUTH__HASH_THREADS": "2",
    }
    settings = load({"name": "b", "auth.acl": "acl.toml"}, environ).settings
    assert msgspec.structs.asdict(settings.auth)["acl"] == "acl.toml"
    assert settings.auth.hash_threads == 2
    assert settings.tls.listen == (("0.0.0.0", 8883), ("::", 8883))
