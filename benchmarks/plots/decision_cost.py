"""What a decision costs, by the number of replicas."""

from statistics import median

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from benchmarks.plots.names import name_lines
from benchmarks.plots.style import draw_line, new_figure, titled
from benchmarks.simulated_runs import BOUNDS, Runs


def figure(runs: Runs) -> Figure | None:
    """Draw the median over seeds at the load that was simulated with most sizes of fleet.

    None where there is but one size.
    """
    runs = runs.of_most_sizes()
    if len(runs.sizes) < 2:
        return None
    drawn, axes = new_figure()
    for policy in runs.policies:
        costs_ms: dict[int, list[float]] = {}
        for one in runs.of(policy):
            costs_ms.setdefault(one.replicas, []).append(one.decide_ms)
        if policy not in BOUNDS and len(costs_ms) > 1:
            x = sorted(costs_ms)
            draw_line(axes, policy, x, [median(costs_ms[replicas]) for replicas in x])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(runs.sizes, [str(replicas) for replicas in runs.sizes])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    titled(
        axes,
        f"Time that a decision takes in Python, {runs.loads[0]:g} live sessions per replica",
        x="replicas",
        y="milliseconds",
    )
    name_lines(axes)
    return drawn
