"""Skips what needs a network of namespaces where none can be built, and says why."""

from __future__ import annotations

import pytest

from lab import obstacle


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("network") and (why := obstacle()):
        pytest.skip(why)
