"""Log lines of the programs: the library logs through `logging`, structlog renders it on standard error."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(level: str) -> None:
    """Send log lines of at least `level` to standard error: coloured on a terminal, ``key=value`` elsewhere."""
    renderer: structlog.types.Processor
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        renderer = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiohttp.server").addFilter(is_our_affair)


def is_our_affair(record: logging.LogRecord) -> bool:
    """False for what aiohttp says, with a traceback, of bytes that are no request, or of a client that is gone. It
    has answered them; whoever sends such may not fill the disk."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__module__ not in (
        "aiohttp.http_exceptions",
        "aiohttp.web_protocol",
        "aiohttp.client_exceptions",
    )
