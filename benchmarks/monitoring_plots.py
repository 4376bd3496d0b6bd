"""The plots of docs/monitoring.md: ``python -m benchmarks.monitoring_plots REPLAY.json``.

REPLAY.json is what ``python -m monitoring.decisions.replay --json`` has written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np

from monitoring.forecasts.backtest import AHEAD, LEARN, SERIES, ours
from monitoring.forecasts.forecast import HOUR

DOCS = Path(__file__).parent.parent / "docs"
WAYS = {"ALM only": "0.6", "most messages first": "tab:orange", "job": "tab:blue", "clairvoyant": "tab:green"}


def day(replay: Path, out: Path) -> None:
    """What crosses between clusters in the course of the day, by way to decide."""
    body = json.loads(replay.read_text())
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=[3, 1])
    for name, colour in WAYS.items():
        series = body["series"][name]
        hours = np.arange(len(series["carried"])) * body["length"] / HOUR
        above.plot(hours, np.array(series["carried"]) / body["length"] / 1000, label=name, color=colour, lw=1.2)
        changes = np.array(series["changes"])[: len(hours)]
        if name in ("job", "most messages first"):
            below.plot(hours[: len(changes)], changes, color=colour, lw=1.0)
    above.set_ylabel("MB/s between clusters")
    above.legend(frameon=False)
    below.set_ylabel("trees changed")
    below.set_yscale("symlog")
    below.set_xlabel("hour of the day")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def forecasts(out: Path) -> None:
    """Four days of one topic of each kind: the mean of each six hours, what was expected of it."""
    figure, axes = plt.subplots(len(SERIES), 1, figsize=(8, 10), sharex=True)
    for axis, (name, make) in zip(axes, SERIES.items(), strict=True):
        series = make(np.random.default_rng(3), 1, 28)
        said = ours(series)
        came = np.convolve(series[0, LEARN:], np.ones(AHEAD) / AHEAD, "valid")
        axis.plot(came[-96:], color="0.6", label="mean of six hours")
        axis.plot(said.six[0, -96:], color="tab:blue", lw=1.2, label="as expected")
        axis.set_title(name, fontsize=9, loc="left")
    axes[0].legend(frameon=False, fontsize=8)
    axes[-1].set_xlabel("hours")
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitoring_plots", description=__doc__)
    parser.add_argument("replay", type=Path)
    chosen = parser.parse_args()
    matplotlib.rcParams["svg.hashsalt"] = "saps"
    day(chosen.replay, DOCS / "monitoring-day.svg")
    forecasts(DOCS / "monitoring-forecast.svg")


if __name__ == "__main__":
    main()
