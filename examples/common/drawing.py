"""Pictures of runs: a small writer of SVG, with axes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

INK, QUIET, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")
"""For series, in their order; told apart also by who does not see all colours."""


class Picture:
    """An SVG picture. Lengths in pixels, from the upper left corner."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height = width, height
        self._parts: list[str] = [f"<title>{escape(title)}</title>", _rectangle(0, 0, width, height, "#ffffff")]

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, *, round_: float = 0) -> None:
        """A filled rectangle."""
        self._parts.append(_rectangle(x, y, width, height, fill, round_))

    def circle(self, x: float, y: float, radius: float, fill: str, edge: str = "#ffffff") -> None:
        """A disc with an edge."""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
        )

    def line(self, points: Iterable[tuple[float, float]], colour: str, width: float = 1.5, dash: str = "") -> None:
        """A line through the points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
            f' stroke-linejoin="round"{dashes}/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        colour: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """Words; `anchor` is ``start``, ``middle`` or ``end``."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        """The picture as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="system-ui, sans-serif">'
        )
        return "\n".join([head, *self._parts, "</svg>", ""])


class Axes:
    """A frame in a picture, with scales."""

    def __init__(
        self,
        picture: Picture,
        box: tuple[float, float, float, float],
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        log: bool = False,
    ) -> None:
        """`box` is left, top, width, height; `x` and `y` are the ends of the scales, logarithmic ones with `log`."""
        self._picture, self._box = picture, box
        self._scale: Callable[[float], float] = (lambda value: math.log10(max(value, 1e-9))) if log else float
        self._log = log
        self._x, self._y = _spread(*map(self._scale, x)), _spread(*map(self._scale, y))

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point of the data is in the picture."""
        left, top, width, height = self._box
        (x0, x1), (y0, y1) = self._x, self._y
        across, up = (self._scale(x) - x0) / (x1 - x0), (self._scale(y) - y0) / (y1 - y0)
        return left + across * width, top + height - up * height

    def frame(self, x_label: str, y_label: str, title: str = "") -> None:
        """Grid, numbers and what they mean."""
        left, top, width, height = self._box
        for value in self._ticks(*self._y):
            _, y = self.at(self._back(self._x[0]), value)
            self._picture.line([(left, y), (left + width, y)], GRID, 1)
            self._picture.text(left - 6, y + 4, f"{value:g}", size=11, colour=QUIET, anchor="end")
        for value in self._ticks(*self._x):
            x, _ = self.at(value, self._back(self._y[0]))
            self._picture.text(x, top + height + 15, f"{value:g}", size=11, colour=QUIET, anchor="middle")
        self._picture.line([(left, top + height), (left + width, top + height)], QUIET, 1)
        self._picture.text(left + width, top + height + 30, x_label, size=11, colour=QUIET, anchor="end")
        self._picture.text(left - 34, top - 8, y_label, size=11, colour=QUIET)
        if title:
            self._picture.text(left, top - 26, title, size=13, bold=True)

    def curve(self, points: Sequence[tuple[float, float]], colour: str, label: str = "", dash: str = "") -> None:
        """A line through points of the data, its name at its end."""
        placed = [self.at(x, y) for x, y in points]
        self._picture.line(placed, colour, 2, dash)
        if label and placed:
            self._picture.text(placed[-1][0] + 6, placed[-1][1] + 4, label, size=11, colour=colour)

    def dot(self, x: float, y: float, colour: str, radius: float = 3.5) -> None:
        """A point of the data."""
        self._picture.circle(*self.at(x, y), radius, colour)

    def _back(self, scaled: float) -> float:
        return 10**scaled if self._log else scaled

    def _ticks(self, low: float, high: float) -> list[float]:
        if self._log:
            return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
        step = 10 ** math.floor(math.log10((high - low) / 2))
        step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
        return [round(n * step, 10) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _spread(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low, low + 1)


def _rectangle(x: float, y: float, width: float, height: float, fill: str, round_: float = 0) -> str:
    corners = f' rx="{round_:g}"' if round_ else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{corners}/>'
