"""How all figures look: one colour a policy, ours on top, names beside the lines."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.knee import best_peer
from benchmarks.simulated_runs import BOUND, Measure, Runs, is_ours

COLOURS = {
    "llmd-weighted": "#0072b2",
    "llmd-sticky": "#56b4e9",
    "dynamo-agentic": "#009e73",
    "dynamo": "#009e73",
    "sglang": "#cc79a7",
    "ray-prefix": "#b8860b",
    "session-hash": "#7f5fa8",
    "production-stack": "#7a5230",
    BOUND: "#000000",
}
"""Okabe and Ito's colours, which those tell apart too who see few colours; others are grey."""

OURS_COLOUR = "#d55e00"
OTHER_COLOUR = "#9a9a9a"
TEXT_COLOUR = "#333333"
_DASHED = ("dynamo", "random", "power-of-two")
_LABEL_POINTS = 10.0
"""Least distance between two names."""


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
    return OURS_COLOUR if is_ours(policy) else COLOURS.get(policy, OTHER_COLOUR)


def draw_line(axes: Axes, policy: str, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw a policy's points, joined."""
    ours = is_ours(policy)
    axes.plot(
        x,
        y,
        color=colour(policy),
        linewidth=2.6 if ours else 1.4,
        linestyle=":" if policy == BOUND else "--" if policy in _DASHED else "-",
        marker="o",
        markersize=5 if ours else 3,
        zorder=4 if ours else 3,
        label=policy,
    )


def draw_curves(axes: Axes, runs: Runs, measure: Measure, policies: Sequence[str]) -> None:
    """Draw a measure by load, the median over seeds; of ours and the best peer also its range."""
    for policy in policies:
        curve = runs.curve(policy, measure)
        loads = [load for load, _ in curve]
        spreads = [spread for _, spread in curve]
        if is_ours(policy) or policy == best_peer(runs):
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


def name_lines(axes: Axes) -> None:
    """Write each line's name right of the plot at the height of its last point, none over another.

    The axes' limits must be final. A line that leaves the plot is named where it does.
    """
    _lay_out(axes)
    bottom, top = axes.get_ylim()
    ends = []
    for line in axes.get_lines():
        name = str(line.get_label())
        if not name.startswith("_"):
            ends.append((float(np.asarray(line.get_ydata())[-1]), name))
    ends.sort()
    apart = _LABEL_POINTS * axes.figure.dpi / 72
    places: list[float] = []
    for y, _ in ends:
        place = axes.transData.transform((0, min(max(y, bottom), top)))[1]
        places.append(max(place, places[-1] + apart) if places else place)
    ceiling = axes.transAxes.transform((0, 1))[1]
    for number in reversed(range(len(places))):
        places[number] = min(places[number], ceiling)
        ceiling = places[number] - apart
    for place, (_, name) in zip(places, ends, strict=True):
        height = axes.transAxes.inverted().transform((0, place))[1]
        _name(axes, name, (1.0, height), "axes fraction", (6.0, 0.0), "left")


def name_ends(axes: Axes) -> None:
    """Write each line's name left of its last point, or below or above that if it is taken.

    The axes' limits must be final.
    """
    _lay_out(axes)
    taken: list[tuple[float, float, float]] = []
    for line in sorted(axes.get_lines(), key=lambda one: -np.asarray(one.get_ydata())[-1]):
        name = str(line.get_label())
        end = (float(np.asarray(line.get_xdata())[-1]), float(np.asarray(line.get_ydata())[-1]))
        right, height = axes.transData.transform(end) * 72 / axes.figure.dpi
        left = right - 6 * len(name)
        for step in sorted(range(-12, 13), key=abs):
            place = height + step * _LABEL_POINTS / 2
            if all(
                abs(place - other) >= _LABEL_POINTS or right < begin or left > stop
                for other, begin, stop in taken
            ):
                break
        taken.append((place, left, right))
        _name(axes, name, end, "data", (-6.0, place - height), "right")


def _lay_out(axes: Axes) -> None:
    """Make the places of points final, as far as names don't change them."""
    assert isinstance(axes.figure, Figure)
    axes.set_xlim(axes.get_xlim())
    axes.set_ylim(axes.get_ylim())
    axes.figure.draw_without_rendering()


def _name(
    axes: Axes,
    policy: str,
    at: tuple[float, float],
    unit: str,
    offset_points: tuple[float, float],
    side: str,
) -> None:
    axes.annotate(
        policy,
        at,
        xycoords=unit,
        xytext=offset_points,
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=9,
        fontweight="bold" if is_ours(policy) else "normal",
        color=colour(policy),
        annotation_clip=False,
    )


def save(figure: Figure, path: Path) -> None:
    """Write a figure as its file's name ends; the same figure gives the same file."""
    with mpl.rc_context({"svg.hashsalt": "warmturn", "svg.fonttype": "none"}):
        content = BytesIO()
        kind = path.suffix.removeprefix(".")
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    path.write_bytes(content.getvalue())
