"""How much of the reuse that there was a policy captured, by load."""

from matplotlib.figure import Figure

from benchmarks.plots.names import name_lines
from benchmarks.plots.style import draw_curves, new_figure, titled
from benchmarks.simulated_runs import BOUNDS, Runs


def figure(runs: Runs) -> Figure | None:
    """Draw hits by available reuse; None where there is but one load."""
    runs = runs.of_main_size()
    if len(runs.loads) < 2:
        return None
    drawn, axes = new_figure()
    policies = [policy for policy in runs.policies if policy not in BOUNDS]
    draw_curves(axes, runs, lambda one: one.captured_ratio, policies)
    axes.set_ylim(top=1.0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    titled(
        axes,
        "Reuse captured, of what unlimited memory and perfect placement would have",
        y="cached tokens by reusable ones",
    )
    name_lines(axes)
    return drawn
