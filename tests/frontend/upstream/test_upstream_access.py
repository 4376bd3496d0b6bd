"""Getting to the upstream: addresses, credentials, TLS, an upstream that is not there, settings that cannot be used."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saps.config import SettingError
from saps.config.sources_io import load
from saps.frontend.upstream.address import Endpoint, url_fault
from saps.frontend.upstream.bridge_io import FIRST_RETRY, delays
from tests.frontend.upstream.sites import Mosquitto, Peer, Saps

SECRET = "s3cret"


def need(tool: str, package: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed (Debian package {package})")


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 0, errors


def test_a_url_says_where_and_who() -> None:
    assert Endpoint.parse("mqtt://h") == Endpoint("h", 1883, False)
    assert Endpoint.parse("mqtts://u%40x:p%3A1@[::1]:99") == Endpoint("::1", 99, True, "u@x", "p:1")
    assert str(Endpoint.parse("mqtts://u:p@[::1]")) == "mqtts://[::1]:8883"


@given(st.text(max_size=30), st.sampled_from(["mqtt", "mqtts", "http", ""]), st.text(max_size=10))
def test_no_fault_of_a_url_and_no_form_of_an_endpoint_tells_the_password(rest: str, scheme: str, host: str) -> None:
    url = f"{scheme}://user:{SECRET}@{host}{rest}"
    fault = url_fault(url)
    if fault is not None:
        assert SECRET not in fault
        with pytest.raises(SettingError) as error:
            load({"name": "b", "upstream.url": url})
        assert SECRET not in str(error.value)
    elif url:
        endpoint = Endpoint.parse(url)
        assert SECRET not in f"{endpoint} {endpoint!r}"


@given(st.integers(0, 99), st.floats(0.1, 100))
def test_the_pauses_between_attempts_grow_to_their_limit(seed: int, limit: float) -> None:
    pauses = list(islice(delays(limit, random.Random(seed)), 12))
    for n, pause in enumerate(pauses):
        whole = min(limit, FIRST_RETRY * 2**n)
        assert whole / 2 <= pause <= whole


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--upstream", f"http://u:{SECRET}@h"], "saps: upstream.url (flag --upstream): must begin with mqtt://"),
        (["--upstream", f"mqtt://u:{SECRET}@h:x"], "saps: upstream.url (flag --upstream): is not a URL"),
        (["--set", "upstream.topics=a/#/b"], "saps: upstream.topics (flag --set): 'a/#/b': filter"),
        (["--set", "upstream.topics=# both,a in"], "saps: upstream.topics (flag --set): '#' (local '#'"),
        (["--set", "upstream.client_id=a b"], "saps: upstream.client_id (flag --set): 'a b' must be"),
        (
            ["--upstream", "mqtt://h", "--set", "upstream.password_file=/nowhere/p"],
            "saps: upstream.password_file (flag --set): cannot use /nowhere/p: No such file",
        ),
        (
            ["--upstream", "mqtts://h", "--set", "upstream.ca_file=/nowhere/ca"],
            "saps: upstream.ca_file (flag --set): cannot use /nowhere/ca: No such file",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_line_and_status_2(arguments: list[str], line: str) -> None:
    ended = subprocess.run([*Saps("b").command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(line)
    assert ended.stderr.count("\n") == 1
    assert SECRET not in ended.stderr


def test_the_file_takes_topics_as_a_list(tmp_path: Path) -> None:
    file = tmp_path / "saps.toml"
    file.write_text('name = "b"\n[upstream]\nurl = "mqtt://h"\ntopics = ["a/# in 1 x/", "b/# out"]\n')
    assert [m.local for m in load(file=file).settings.upstream.mappings()] == ["x/a/#", "b/#"]
    file.write_text('name = "b"\n[upstream]\ntopics = ["a/# in",\n "a/# both 2"]\n')
    with pytest.raises(SettingError, match=r"upstream\.topics .*:3.*not exactly once"):
        load(file=file)


@pytest.mark.interop
async def test_an_upstream_that_is_not_there_is_said_once_and_found_when_it_comes(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path)
    async with Saps("a", "--set", "log_level=info", upstream=mosquitto.url) as a, Peer(a.port) as inside:
        await a.logs(lambda lines: any("is away" in line for line in lines))
        await inside.publish("t", "kept")
        await mosquitto.start()
        try:
            async with Peer(mosquitto.port) as outside:
                await outside.subscribe("#")
                await a.connected()
                await outside.has("t", "kept")
        finally:
            await mosquitto.stop()
        assert sum("is away" in line for line in a.log if "refused" in line) == 1


@pytest.mark.interop
async def test_tls_with_user_and_password(tmp_path: Path) -> None:
    need("openssl", "openssl")
    need("mosquitto_passwd", "mosquitto")
    key, certificate, passwords = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "passwords"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    await run(*new, *subject, "-keyout", str(key), "-out", str(certificate))
    await run("mosquitto_passwd", "-b", "-c", str(passwords), "site", SECRET)
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    lines = (f"password_file {passwords}", f"certfile {certificate}", f"keyfile {key}")
    ca = ("--set", f"upstream.ca_file={certificate}", "--set", "log_level=debug")
    async with Mosquitto(tmp_path / "m", *lines) as mosquitto:
        address = f"127.0.0.1:{mosquitto.port}"
        good = (*ca, "--set", f"upstream.password_file={secret}")
        async with (
            Saps("a", *good, upstream=f"mqtts://site@{address}") as a,
            Saps("b", *ca, upstream=f"mqtts://site:{SECRET}@{address}") as b,
            Saps("c", *ca, upstream=f"mqtts://site:wrong@{address}") as c,
            Saps("d", upstream=f"mqtts://site:{SECRET}@{address}") as d,
            Peer(a.port) as at_a,
            Peer(b.port) as at_b,
        ):
            await asyncio.gather(a.connected(), b.connected())
            await c.logs(lambda log: any("is away" in line and "Not authorized" in line for line in log))
            await d.logs(lambda log: any("is away" in line and "certificate verify failed" in line for line in log))
            await at_b.subscribe("#")
            await at_a.publish("t", "from one mesh to the other")
            await at_b.has("t", "from one mesh to the other")
            await asyncio.gather(a.stop(), b.stop(), c.stop(), d.stop())
        assert SECRET not in "".join(a.log + b.log + d.log)
