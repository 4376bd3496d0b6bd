"""What the tests of the lab share: labs in a directory of their own, and the reason why there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import obstacle


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what needs a network where none can be built, and says why."""
    if item.get_closest_marker("network") and (why := obstacle()):
        pytest.skip(why)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this module's labs keep their state: apart from anyone else's, so that nobody clears them away."""
    return tmp_path_factory.mktemp("labs") / "d"
