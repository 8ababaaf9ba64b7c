"""How all figures look: one colour a policy, ours on top."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.knee import best_peer
from benchmarks.simulated_runs import BOUNDS, Measure, Runs, base_name, is_ours

COLOURS = {
    "llmd-weighted": "#0072b2",
    "llmd-sticky": "#56b4e9",
    "dynamo-agentic": "#009e73",
    "dynamo": "#009e73",
    "sglang": "#cc79a7",
    "ray-prefix": "#b8860b",
    "session-hash": "#7f5fa8",
    "production-stack": "#7a5230",
    "oracle": "#000000",
    "pooled-oracle": "#000000",
}
"""Okabe and Ito's colours, which those tell apart too who see few colours; others are grey."""

OURS_COLOUR = "#d55e00"
OTHER_COLOUR = "#9a9a9a"
TEXT_COLOUR = "#333333"
_DASHED = ("dynamo", "random", "power-of-two")


def new_figure(width_inches: float = 7.2, height_inches: float = 4.4) -> tuple[Figure, Axes]:
    """Return an empty figure with one plot."""
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    return figure, tidy(figure.add_subplot())


def tidy(axes: Axes) -> Axes:
    """Leave out what carries nothing; return the plot."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(OTHER_COLOUR)
    axes.tick_params(colors=TEXT_COLOUR, labelsize=9)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def titled(axes: Axes, title: str, *, x: str | None = None, y: str | None = None) -> None:
    """Say what a plot shows, and what its axes are where that is not said yet."""
    axes.set_title(title, loc="left", fontsize=11, color=TEXT_COLOUR, pad=10)
    if x is not None:
        axes.set_xlabel(x)
    if y is not None:
        axes.set_ylabel(y)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(fontsize=9.5, color=TEXT_COLOUR)


def colour(policy: str) -> str:
    """Return a policy's colour."""
    return OURS_COLOUR if is_ours(policy) else COLOURS.get(base_name(policy), OTHER_COLOUR)


def draw_line(axes: Axes, policy: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw a policy's points, joined."""
    ours = is_ours(policy)
    axes.plot(
        x,
        y,
        color=colour(policy),
        linewidth=2.6 if ours else 1.4,
        linestyle=_linestyle(policy),
        marker="o",
        markersize=5 if ours else 3,
        zorder=4 if ours else 3,
        label=policy,
    )


def _linestyle(policy: str) -> str:
    if "," in policy:
        return "-."
    return ":" if policy in BOUNDS else "--" if policy in _DASHED else "-"


def draw_curves(axes: Axes, runs: Runs, measure: Measure, policies: Sequence[str]) -> None:
    """Draw a measure by load, the median over seeds; of ours and the best peer also its range."""
    banded = [policy for policy in policies if is_ours(policy) or policy == best_peer(runs)]
    for policy in policies:
        curve = runs.curve(policy, measure)
        loads = [load for load, _ in curve]
        spreads = [spread for _, spread in curve]
        if policy in banded:
            axes.fill_between(
                loads,
                [one.low for one in spreads],
                [one.high for one in spreads],
                color=colour(policy),
                alpha=0.15,
                linewidth=0,
            )
        draw_line(axes, policy, loads, [one.median for one in spreads])
    axes.set_xticks(runs.loads)
    axes.set_xlabel(
        f"live sessions per replica ({runs.results[0].replicas} replicas; lines: median of "
        f"{len(runs.seeds)} seeds, bands: least to most)"
    )


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its file's name ends; the same figure gives the same file."""
    with mpl.rc_context({"svg.hashsalt": "warmturn", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
