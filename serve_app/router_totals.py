"""What the router actor counts: each counter of `metrics.py` that is its own."""

from collections.abc import Iterable, Iterator
from itertools import product

from policies.kv_events import Event, Removed, Stored
from policies.misses import PromptTokens
from policies.types import Tier
from serve_app import metrics
from serve_app.decision_log import LoggedTurn
from serve_app.metric import Kind, Metric, Owner, Sample
from serve_app.replica_report import TurnEnd


class RouterTotals:
    """Counters by their labels' values, from 0 where these are known beforehand."""

    def __init__(self) -> None:
        self._values = {
            (one.name, values): 0.0
            for one in metrics.METRICS.values()
            if one.owner is Owner.ROUTER and one.kind is Kind.COUNTER
            for values in product(*one.labels.values())
        }

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """Add to a counter."""
        key = metric.name, labels
        self._values[key] = self._values.get(key, 0.0) + value

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """Take over a counter that somebody else counts."""
        self._values[metric.name, labels] = value

    def samples(self) -> Iterator[Sample]:
        """Yield every counter."""
        for (name, labels), value in self._values.items():
            yield Sample(name, labels, value)

    def decided(self, turn: LoggedTurn) -> None:
        """Count the decision that was just made on a turn."""
        made = turn.decision
        assert made is not None
        self.add(metrics.DECISIONS, 1, made.rule)
        if turn.park and turn.decisions == 1:
            self.add(metrics.WAITED_TURNS, 1)
            self.add(metrics.WAITED_SECONDS, turn.waited_s)

    def ended(self, end: TurnEnd, turn: LoggedTurn | None, tokens: PromptTokens | None) -> None:
        """Count what came of a turn, which the log may have forgotten or never known.

        `tokens` are None where nobody knows what became of them, as Router.judge says.
        """
        self.add(metrics.PROMPT_TOKENS, end.prompt_tokens)
        self.add(metrics.CACHED_TOKENS, end.cached_tokens)
        if tokens:
            for tier, hit in tokens.hits.items():
                self.add(metrics.HIT_TOKENS, hit, _name(tier))
            for kind, missed in tokens.misses.items():
                self.add(metrics.MISSED_TOKENS, missed, kind)
        made = turn and turn.decision
        if turn and made and made.replica == turn.ended_on and end.ttft_s is not None:
            for tier, expected in made.cached_tokens.items():
                self.add(metrics.EXPECTED_CACHED_TOKENS, expected, _name(tier))
            self.add(metrics.COMPARED_TURNS, 1)
            self.add(metrics.EXPECTED_TTFT_SECONDS, made.ttft_s)
            self.add(metrics.ACTUAL_TTFT_SECONDS, end.ttft_s)

    def kv_events(self, events: Iterable[Event]) -> None:
        """Count the blocks that came to a tier of a replica and those that left it."""
        for event in events:
            if isinstance(event, Stored):
                self.add(metrics.STORED_BLOCKS, len(event.engine_hashes), _name(event.tier))
            elif isinstance(event, Removed):
                self.add(metrics.REMOVED_BLOCKS, len(event.engine_hashes), _name(event.tier))


def _name(tier: Tier) -> str:
    return tier.name.lower()
