"""Names of policies beside their lines, instead of a legend."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.plots.style import colour
from benchmarks.simulated_runs import is_ours

_APART_POINTS = 10.0
"""Least distance between two names."""


def name_lines(axes: Axes) -> None:
    """Write each line's name right of the plot at the height of its last point, none over another.

    No lines can be drawn afterwards. A line that leaves the plot is named where it does.
    """
    _lay_out(axes)
    bottom, top = axes.get_ylim()
    ends = []
    for line in axes.get_lines():
        name = str(line.get_label())
        if not name.startswith("_"):
            ends.append((float(np.asarray(line.get_ydata())[-1]), name))
    ends.sort()
    apart = _APART_POINTS * axes.figure.dpi / 72
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

    No lines can be drawn afterwards.
    """
    _lay_out(axes)
    taken: list[tuple[float, float, float]] = []
    for line in sorted(axes.get_lines(), key=lambda one: -np.asarray(one.get_ydata())[-1]):
        name = str(line.get_label())
        end = (float(np.asarray(line.get_xdata())[-1]), float(np.asarray(line.get_ydata())[-1]))
        right, height = axes.transData.transform(end) * 72 / axes.figure.dpi
        left = right - 6 * len(name)
        for step in sorted(range(-12, 13), key=abs):
            place = height + step * _APART_POINTS / 2
            if all(
                abs(place - other) >= _APART_POINTS or right < begin or left > stop
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
