"""Sources that tests read, each parsed once: those tests are in one group, on one worker."""

from __future__ import annotations

import ast
from functools import cache

import pytest

parsed = cache(ast.parse)
IN_ONE_PLACE = pytest.mark.xdist_group("sources")
