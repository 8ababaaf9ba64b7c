"""Up to which load a policy keeps the time to first token: its knee, between simulated loads."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.simulated_runs import Curve, Runs, Spread
from benchmarks.simulator.measurements import TTFT_SLO_S


@dataclass(frozen=True, slots=True)
class Knee:
    """The first load at which the 90th percentile reaches the SLO, with its spread over seeds.

    `below` and `above` say that some seed's is beyond the simulated loads, of which it then has the
    nearest.
    """

    load: Spread
    below: bool
    above: bool

    @property
    def known(self) -> bool:
        """Whether the median is between simulated loads."""
        return not (
            (self.below and self.load.median == self.load.low)
            or (self.above and self.load.median == self.load.high)
        )


def knee(runs: Runs, policy: str) -> Knee:
    """Return a policy's knee, each seed's by linear interpolation."""
    curves = [
        sorted((one.load, one.ttft_s.p90) for one in runs.of(policy, seed=seed))
        for seed in runs.seeds
    ]
    curves = [curve for curve in curves if curve]
    return Knee(
        Spread.of([_crossing(curve) for curve in curves]),
        below=any(curve[0][1] >= TTFT_SLO_S for curve in curves),
        above=any(max(p90_s for _, p90_s in curve) < TTFT_SLO_S for curve in curves),
    )


def best_peer(runs: Runs) -> str | None:
    """Return the peer whose knee is at the highest load; None if there are no peers."""
    return max(runs.peers, key=lambda peer: knee(runs, peer).load.median, default=None)


def at_load(curve: Curve, load: float) -> float | None:
    """Return a curve's median at a load, by linear interpolation; None outside of it."""
    for (left, low), (right, high) in pairwise(curve):
        if left <= load <= right:
            share = (load - left) / (right - left)
            return low.median + share * (high.median - low.median)
    return curve[0][1].median if load == curve[0][0] else None


def _crossing(points: Sequence[tuple[float, float]]) -> float:
    """Return the first load at which a value reaches the SLO, or the nearest that is known."""
    if points[0][1] >= TTFT_SLO_S:
        return points[0][0]
    for (left, low), (right, high) in pairwise(points):
        if high >= TTFT_SLO_S:
            return left + (right - left) * (TTFT_SLO_S - low) / (high - low)
    return points[-1][0]
