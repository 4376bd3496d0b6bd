"""Shows a run while it lasts: on the live screen, or in lines where there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from examples.smart_city.display import Display
from examples.smart_city.glance import TITLE, Observer
from examples.smart_city.loop import Loop
from examples.smart_city.run import Run
from examples.smart_city.screen import status_line

LOOK_INTERVAL = 0.25
"""Seconds between two looks at the run on the live screen."""

LINE_INTERVAL = 3.0
"""Seconds between two status lines without one."""


@asynccontextmanager
async def live_screen(run: Run, title: str = TITLE, loop: Loop | None = None) -> AsyncIterator[None]:
    """Draws the run inside the block, in another process."""
    observer = Observer(run, title, loop)

    async def look(display: Display) -> None:
        while True:
            display.show(observer.look(time.monotonic()))
            await asyncio.sleep(LOOK_INTERVAL)

    async with Display() as display:
        looking = asyncio.create_task(look(display))
        try:
            yield
        finally:
            looking.cancel()


@asynccontextmanager
async def status_lines(run: Run, loop: Loop | None = None) -> AsyncIterator[None]:
    """Prints the run inside the block, a line now and then."""
    observer = Observer(run, loop=loop)

    async def tell() -> None:
        told = 0
        while True:
            glance = observer.look(time.monotonic())
            for at, text in glance.news[told:]:
                print(f"{at:4.0f} s  {text}", flush=True)
            told = len(glance.news)
            print(status_line(glance), flush=True)
            await asyncio.sleep(LINE_INTERVAL)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
