"""The benchmark of a long cut: it measures what it says."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.long_cut import MadeUp, Result, main, markdown, measure
from lab import obstacle


@pytest.mark.soak
@pytest.mark.skipif(obstacle() is not None, reason="no lab can be built")
def test_a_short_cut_is_made_up() -> None:
    said: list[str] = []
    result = asyncio.run(measure(0.1, 50.0, said.append))
    for site in result.sites:
        assert site.lost == site.doubled == site.late == 0
        assert 250 <= site.missed <= 400
        assert 0 < site.begun <= site.done
    assert result.lost_live == result.wrong_live == 0
    assert said[0] == "before the cut"
    assert said[-1] == "making up"


def test_the_tables_say_how_fast() -> None:
    sites = [MadeUp("east", 36000, 0, 0, 0, 2.0, 4.0), MadeUp("west", 36000, 1, 2, 3, 2.5, 6.5)]
    page = markdown(Result(sites, {"in a site": [0.001, 0.0205]}, 3, 4), "said")
    assert "| east | 36,000 | 0 | 0 | 0 | 2.0 s | 4.0 s | 18,000/s |" in page
    assert "| west | 36,000 | 1 | 2 | 3 | 2.5 s | 6.5 s | 9,000/s |" in page
    assert "(3 lost, 4 doubled or out of order)" in page
    assert "| in a site | 1.0 ms | 20.5 ms |" in page


@pytest.mark.parametrize("flag", ["--minutes", "--rate"])
def test_a_cut_of_no_time_or_traffic_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([flag, "0"])
    assert flag in capsys.readouterr().err
