"""What a replica answers per second, against how fast each user's answers come."""

from matplotlib.figure import Figure

from benchmarks.plots.names import name_ends
from benchmarks.plots.style import draw_line, new_figure, titled
from benchmarks.simulated_runs import Runs


def figure(runs: Runs) -> Figure | None:
    """Draw a point for each load, the medians over seeds; None where there is but one load."""
    runs = runs.of_main_size()
    if len(runs.loads) < 2:
        return None
    drawn, axes = new_figure(height_inches=4.8)
    for policy in runs.policies:
        fleet = runs.curve(policy, lambda one: one.output_tokens_per_s / one.replicas)
        user = runs.curve(policy, lambda one: one.user_tokens_per_s)
        draw_line(axes, policy, *([spread.median for _, spread in one] for one in (user, fleet)))
    axes.margins(x=0.2)
    titled(
        axes,
        f"Throughput against interactivity, from {runs.loads[0]:g} live sessions per replica "
        f"(right) to {runs.loads[-1]:g}",
        x="tokens per second that one user sees, median",
        y="output tokens per second and replica",
    )
    name_ends(axes)
    return drawn
