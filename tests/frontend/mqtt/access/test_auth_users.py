"""Password files: what is stored, read, refused and edited."""

from __future__ import annotations

import hashlib
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saps.frontend.mqtt.access.faults import FileError
from saps.frontend.mqtt.access.users import Scrypt, hash_password, parse_users, user_name_fault, with_user
from tests.frontend.mqtt.peers import need

GOOD = "$scrypt$ln=1,r=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA"

names = st.text(min_size=1, max_size=12).filter(lambda name: user_name_fault(name) is None)
comments = st.sampled_from(["", "# a comment", "#x:y", "   "])


def quick(password: bytes) -> Scrypt:
    """As `hash_password`, at no cost worth the name."""
    return Scrypt(1, 1, 1, b"salt", hashlib.scrypt(password, salt=b"salt", n=2, r=1, p=1, dklen=32))


def test_a_new_hash_is_scrypt_as_others_compute_it() -> None:
    stored = hash_password(b"secret", b"0123456789abcdef")
    _, kind, cost, salt, digest = str(stored).split("$")
    assert (kind, cost) == ("scrypt", "ln=14,r=8,p=1")
    expected = hashlib.scrypt(b"secret", salt=b64decode(salt + "=="), n=2**14, r=8, p=1, dklen=32, maxmem=1 << 26)
    assert b64decode(digest + "=") == expected
    assert stored.matches(b"secret")
    assert not stored.matches(b"Secret")


@given(st.dictionaries(names, st.binary(max_size=8), max_size=4), st.lists(comments, max_size=3))
def test_a_file_reads_back_as_written(passwords: dict[str, bytes], others: list[str]) -> None:
    text = "".join(line + "\n" for line in others)
    for name, password in passwords.items():
        text = with_user(text, name, quick(password))
    users = parse_users(text)
    assert users == {name: quick(password) for name, password in passwords.items()}
    assert all(users[name].matches(password) for name, password in passwords.items())
    assert text.split("\n")[: len(others)] == others


@given(st.lists(names, min_size=1, max_size=5, unique=True), st.data())
def test_an_edit_changes_one_line_and_no_other(everyone: list[str], data: st.DataObject) -> None:
    text = "# head\n" + "".join(f"{name}:{GOOD}\n\n" for name in everyone)
    name = data.draw(st.sampled_from(everyone))
    at = 1 + 2 * everyone.index(name)
    lines = text.split("\n")
    assert with_user(text, name, quick(b"x")).split("\n") == [*lines[:at], f"{name}:{quick(b'x')}", *lines[at + 1 :]]
    assert with_user(text, name, None).split("\n") == [*lines[:at], *lines[at + 1 :]]


def test_a_file_without_a_last_newline_or_with_crlf_is_taken() -> None:
    assert set(parse_users(f"ann:{GOOD}\r\nbob:{GOOD}")) == {"ann", "bob"}
    assert with_user(f"ann:{GOOD}", "bob", quick(b"")).count("\n") == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\nann", "line 2: not a password hash of a known kind: write the line with 'saps passwd'"),
        ("ann:secret", "line 1: not a password hash of a known kind: write the line with 'saps passwd'"),
        (f":{GOOD}", "line 1: a user name must have at least one character"),
        (f" ann:{GOOD}", "line 1: the user name ' ann' must be of printable characters"),
        (f"a\x85b:{GOOD}", "line 1: the user name 'a\\x85b' must be of printable characters"),
        (f"ann:{GOOD}\n#\nann:{GOOD}", "line 3: the user 'ann' is in line 1 already"),
        (f"ann:{GOOD.replace('ln=1,', 'ln=23,')}", "line 1: ln=23,r=1,p=1 costs more than this broker accepts"),
        (f"ann:{GOOD.replace('r=1', 'r=0')}", "line 1: ln=1,r=0,p=1 costs more than this broker accepts"),
        (f"ann:{GOOD.replace('p=1', 'p=9999').replace('ln=1', 'ln=14')}", "line 1: ln=14,r=1,p=9999 costs more"),
        ("ann:$scrypt$ln=1,r=1,p=1$AAAA$AAAA", "line 1: a digest of 3 bytes; 16 to 64 are expected"),
        ("ann:$scrypt$ln=1,r=1,p=1$AAAAA$AAAA", "line 1: salt or digest is not base64"),
        ("ann:$7$0$AAAA$AAAAAAAAAAAAAAAAAAAAAA==", "line 1: 0 iterations cost more than this broker accepts"),
    ],
)
def test_every_fault_is_told_with_its_line_and_never_with_a_password(text: str, fault: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_users(text)
    assert str(caught.value).startswith(fault)
    assert "secret" not in str(caught.value)


@settings(max_examples=200)
@given(st.text(alphabet=":$#,=\n\r abln17rpscryt0\0\x85é", max_size=60))
def test_no_text_makes_parsing_fail_otherwise(text: str) -> None:
    fault = ""
    try:
        parse_users(text)
    except FileError as error:
        fault = str(error)
    assert fault == "" or fault.startswith("line ")


@pytest.mark.interop
def test_a_file_of_mosquitto_passwd_is_read(tmp_path: Path) -> None:
    need("mosquitto_passwd", "mosquitto")
    file = tmp_path / "passwords"
    for command in (("-c", "-b", str(file), "ann", "secret"), ("-b", str(file), "bob", "other: é")):
        subprocess.run(["mosquitto_passwd", *command], check=True, capture_output=True)
    users = parse_users(file.read_text())
    assert users["ann"].matches(b"secret")
    assert users["bob"].matches("other: é".encode())
    assert not users["ann"].matches(b"other")
    assert parse_users("".join(f"{name}:{stored}\n" for name, stored in users.items())) == users
