"""Loads aiohttp's server without its client.

``import aiohttp`` loads both. The client takes some 5 MiB, and OpenSSL's certificates, which it reads, 2 MiB more. Most
brokers with a Web port send no requests. frozenlist's machine code takes 1 MiB, for the C++ library: aiohttp has a
handful of these lists, which change when it starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

PACKAGE = "aiohttp"
NO_MACHINE_CODE = "FROZENLIST_NO_EXTENSIONS"
"""Environment variable that frozenlist reads when it is loaded."""


def without_client() -> None:
    """Let later imports of modules of aiohttp load only those modules. The first use of one of the package's own names,
    such as ``aiohttp.ClientSession``, loads all of it. Does nothing if it is loaded already."""
    spec = importlib.util.find_spec(PACKAGE)
    if PACKAGE in sys.modules or spec is None or spec.loader is None:
        return
    if NO_MACHINE_CODE not in os.environ:
        os.environ[NO_MACHINE_CODE] = "1"
        importlib.import_module("frozenlist")
        del os.environ[NO_MACHINE_CODE]
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def load(name: str) -> Any:
        if name.startswith("__") or importlib.util.find_spec(f"{PACKAGE}.{name}") is not None:
            raise AttributeError(name)  # the import of a module goes on
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, name)

    package.__version__ = ""  # type: ignore[attr-defined]
    package.__getattr__ = load  # type: ignore[method-assign]
    sys.modules[PACKAGE] = package
