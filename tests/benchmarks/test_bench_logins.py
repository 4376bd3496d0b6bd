"""The benchmark of logins runs, and each kind of login that is known is let in."""

from __future__ import annotations

import sys

import pytest

from benchmarks import logins


def test_every_kind_of_login_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["logins", "--rounds", "1"])
    monkeypatch.setattr(logins, "LOGINS", 20)
    assert logins.main() in {0, 1}  # it met its goal or not: no test says how fast a machine is
    _, *rows = capsys.readouterr().out.splitlines()
    for kind, row in zip(("password", "token (RS256)", "token (ES256)", "HTTP service"), rows, strict=True):
        assert row.startswith(kind)
        assert all(float(figure) > 0 for figure in row.split()[-2:])
