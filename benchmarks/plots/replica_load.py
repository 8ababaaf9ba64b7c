"""How evenly requests run on the replicas, minute by minute."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.knee import best_peer, knee
from benchmarks.plots.style import TEXT_COLOUR, colour, tidy
from benchmarks.simulated_runs import OURS, Runs, is_ours
from benchmarks.simulator.result import Result

_POISSON_COLOUR = "#f0e442"


def figure(runs: Runs) -> Figure | None:
    """Draw our policy, the best peer and random placement; None where ours is missing.

    At the highest load that our policy's knee is not below, and for the first seed.
    """
    runs = runs.of_main_size()
    if OURS not in runs.policies:
        return None
    most = knee(runs, OURS).load.median
    load = max((one for one in runs.loads if one <= most), default=runs.loads[0])
    wanted = (OURS, best_peer(runs), "random")
    found = [runs.of(one, load=load)[0] for one in wanted if one in runs.policies]
    drawn = Figure(figsize=(7.2, 1.1 + 1.35 * len(found)), layout="constrained")
    plots = drawn.subplots(len(found), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, result in zip(plots, found, strict=True):
        _draw(tidy(axes), result)
    plots[0].set_ylim(bottom=0)
    plots[-1].set_xlabel(
        "minutes measured; dashed: mean; band: Poisson's deviation, whose variance by mean is 1",
        fontsize=9.5,
        color=TEXT_COLOUR,
    )
    drawn.suptitle(
        f"Requests running in each of {found[0].replicas} replicas, {load:g} live sessions per "
        "replica",
        x=0.01,
        ha="left",
        fontsize=11,
        color=TEXT_COLOUR,
    )
    return drawn


def _draw(axes: Axes, result: Result) -> None:
    running = np.array(result.running)
    minutes = np.arange(len(running))
    mean = running.mean(axis=1)
    deviation = np.sqrt(mean)
    axes.fill_between(
        minutes, mean - deviation, mean + deviation, color=_POISSON_COLOUR, alpha=0.35, linewidth=0
    )
    axes.plot(minutes, running, color=colour(result.policy), linewidth=0.9, alpha=0.75)
    axes.plot(minutes, mean, color=TEXT_COLOUR, linewidth=1.2, linestyle="--")
    axes.set_title(
        f"{result.policy}: variance by mean {result.dispersion:.2f}",
        loc="left",
        fontsize=9,
        fontweight="bold" if is_ours(result.policy) else "normal",
        color=colour(result.policy),
    )
