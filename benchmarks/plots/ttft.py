"""How long the slowest tenth waits for a first token, by load."""

from matplotlib.figure import Figure

from benchmarks.plots.names import name_lines
from benchmarks.plots.style import TEXT_COLOUR, draw_curves, new_figure, titled
from benchmarks.simulated_runs import Runs
from benchmarks.simulator.measurements import TTFT_SLO_S

_TICKS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def figure(runs: Runs) -> Figure | None:
    """Draw the 90th percentile; None where there is but one load."""
    runs = runs.of_main_size()
    if len(runs.loads) < 2:
        return None
    drawn, axes = new_figure(height_inches=4.8)
    draw_curves(axes, runs, lambda one: one.ttft_s.p90, runs.policies)
    axes.set_yscale("log")
    axes.set_ylim(_TICKS_S[0], _TICKS_S[-1])
    axes.set_yticks(_TICKS_S, [f"{tick:g}" for tick in _TICKS_S])
    axes.minorticks_off()
    axes.axhline(TTFT_SLO_S, color=TEXT_COLOUR, linewidth=1, linestyle=(0, (2, 2)), label="_slo")
    titled(
        axes,
        f"Time to first token by load; a line's knee is at {TTFT_SLO_S:g} s",
        y="90th percentile, seconds",
    )
    name_lines(axes)
    return drawn
