"""What became of the prompts' tokens: cached, or which kind of miss."""

from matplotlib.figure import Figure

from benchmarks.knee import best_peer, knee
from benchmarks.plots.style import OURS_COLOUR, TEXT_COLOUR, new_figure, titled
from benchmarks.simulated_runs import Measure, Runs, is_ours

PARTS: tuple[tuple[str, str, Measure], ...] = (
    ("cached in GPU memory", "#0072b2", lambda one: one.hits.gpu),
    ("in CPU memory", "#56b4e9", lambda one: one.hits.cpu),
    ("in the shared tier", "#009e73", lambda one: one.hits.shared),
    ("missed: on another replica", "#e69f00", lambda one: one.misses.elsewhere),
    ("missed: evicted", "#cc79a7", lambda one: one.misses.evicted),
    ("missed: first seen, no cache can help", "#d9d9d9", lambda one: one.misses.first_seen),
)


def figure(runs: Runs) -> Figure:
    """Draw a bar for each policy, at the load nearest to the best peer's knee."""
    runs = runs.of_main_size()
    peer = best_peer(runs)
    wanted = knee(runs, peer).load.median if peer else runs.loads[-1]
    load = min(runs.loads, key=lambda one: abs(one - wanted))

    def mean(policy: str, measure: Measure) -> float:
        values = [measure(one) for one in runs.of(policy, load=load)]
        return sum(values) / len(values)

    policies = [policy for policy in runs.policies if runs.of(policy, load=load)]
    policies.sort(key=lambda policy: mean(policy, lambda one: one.hit_ratio))
    drawn, axes = new_figure(height_inches=1.6 + 0.24 * len(policies))
    ends = [0.0] * len(policies)
    for name, colour, measure in PARTS:
        shares = [mean(policy, measure) for policy in policies]
        if not any(shares):
            continue
        axes.barh(policies, shares, left=ends, color=colour, label=name, height=0.75)
        ends = [end + share for end, share in zip(ends, shares, strict=True)]
    for number, policy in enumerate(policies):
        hit = mean(policy, lambda one: one.hit_ratio)
        axes.text(0.01, number, f"{hit:.1%}", color="white", fontsize=8, va="center")
    for label, policy in zip(axes.get_yticklabels(), policies, strict=True):
        if is_ours(policy):
            label.set(color=OURS_COLOUR, fontweight="bold")
    axes.grid(visible=False)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    titled(axes, f"Prompt tokens at {load:g} live sessions per replica")
    drawn.legend(
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
        labelcolor=TEXT_COLOUR,
    )
    return drawn
