"""The table that `benchmarks.simulate` prints, and what replicas that joined did."""

from collections.abc import Sequence

from rich.console import Console

from benchmarks.simulated_table import print_table
from benchmarks.simulator.joining import Joining
from benchmarks.simulator.result import Result

COLUMNS = (
    ("policy", lambda one: one.policy),
    ("replicas", lambda one: str(one.replicas)),
    ("load", lambda one: f"{one.load:g}"),
    ("seed", lambda one: str(one.seed)),
    ("requests", lambda one: str(one.requests)),
    ("TTFT p50 s", lambda one: f"{one.ttft_s.p50:.2f}"),
    ("p90", lambda one: f"{one.ttft_s.p90:.2f}"),
    ("p99", lambda one: f"{one.ttft_s.p99:.1f}"),
    ("plain p99", lambda one: f"{one.ttft_plain_s.p99:.1f}" if one.ttft_plain_s else ""),
    ("e2e p50 s", lambda one: f"{one.e2e_s.p50:.1f}"),
    ("hit", lambda one: f"{one.hit_ratio:.3f}"),
    ("shared", lambda one: f"{one.hits.shared:.3f}"),
    ("captured", lambda one: f"{one.captured_ratio:.3f}"),
    ("evicted", lambda one: f"{one.misses.evicted:.3f}"),
    ("elsewhere", lambda one: f"{one.misses.elsewhere:.3f}"),
    ("goodput/s", lambda one: f"{one.goodput_rps:.3f}"),
    ("refused", lambda one: str(one.refusals)),
    ("dispersion", lambda one: f"{one.dispersion:.2f}"),
    ("moves", lambda one: str(one.moves)),
    ("splits", lambda one: str(one.splits)),
)
"""What the table shows of a result."""


def print_placement(results: Sequence[Result]) -> None:
    """Print a row for each result, and then a line for each replica that joined."""
    print_table(results, COLUMNS, least_width=210)
    for result in results:
        if result.joining:
            _print_joining(result, result.joining)


def _print_joining(result: Result, joining: Joining) -> None:
    """Print what a replica that joined did."""
    shares = " ".join(f"{share:.2f}" for share in joining.shares[:10])
    Console(highlight=False, soft_wrap=True).print(
        f"{result.policy}, load {result.load:g}, seed {result.seed}: a replica joined; hit ratio "
        f"{joining.hit_ratio_before:.3f} in the ten minutes before, {joining.hit_ratio_after:.3f} "
        f"after; its share of requests by minute, of an even one: {shares}"
    )
