"""Formats the programs' log lines on standard error: short and coloured on a terminal, logfmt elsewhere.

Uses only the standard library, which keeps an idle broker small.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time

_COLOURS = {"debug": "36", "info": "32", "warning": "33", "error": "31", "critical": "1;31"}
_PLAIN = re.compile(r"[^\s\"=\x00-\x1f\x7f]+")


class Logfmt(logging.Formatter):
    """One line ``timestamp=... level=... event="..." logger=...``, with a traceback as ``exception="..."``."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "timestamp": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return " ".join(f"{name}={_quoted(value)}" for name, value in fields.items())


class Short(logging.Formatter):
    """A line ``12:00:00 warning  what happened`` for people, with a coloured level."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"\x1b[2m{clock}\x1b[0m \x1b[{_COLOURS.get(level, '0')}m{level:<8}\x1b[0m {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(level: str) -> None:
    """Send log lines of at least `level` to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Short() if sys.stderr.isatty() else Logfmt())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiohttp.server").addFilter(is_our_affair)


def _quoted(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)


def is_our_affair(record: logging.LogRecord) -> bool:
    """Filter out the tracebacks that aiohttp logs for malformed requests and lost clients: it has answered them, and
    strangers must not fill the disk."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__module__ not in (
        "aiohttp.http_exceptions",
        "aiohttp.web_protocol",
        "aiohttp.client_exceptions",
    )
