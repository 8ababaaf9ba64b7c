"""A replay's figures: one row of the table and of the JSON file."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from benchmarks.exchange import Exchange
from benchmarks.live_replay import Replay
from benchmarks.reuse import account
from policies.types import ReplicaId, SessionId


def figures(replay: Replay, block_size: int, replicas: int | None, slo_s: float) -> dict[str, Any]:
    """Return what was measured; ratios are of prompt tokens, None where nothing is to divide.

    `replicas` is how many there are, by default those that answered. `goodput_rps` counts the
    requests whose first token came within `slo_s`, per second from first send to last end.
    """
    done = sorted(replay.exchanges, key=attrgetter("sent_s"))
    reuse = account(done, block_size)
    prompt_tokens = reuse.prompt_tokens
    replicas = replicas or len({one.replica for one in done})
    ttfts_s = [one.first_token_s - one.sent_s for one in done]
    window_s = max((one.ended_s for one in done), default=0.0) - (done[0].sent_s if done else 0.0)
    return {
        "replicas": replicas,
        "requests": len(done),
        "ttft_s": _percentiles(ttfts_s),
        "e2e_s": _percentiles([one.ended_s - one.sent_s for one in done]),
        "hit_ratio": _ratio(reuse.hit_tokens, prompt_tokens),
        "available_ratio": _ratio(reuse.available_tokens, prompt_tokens),
        "captured_ratio": _ratio(reuse.hit_tokens, reuse.available_tokens),
        "misses": {
            "first_seen": _ratio(reuse.first_seen_tokens, prompt_tokens),
            "evicted": _ratio(reuse.evicted_tokens, prompt_tokens),
            "elsewhere": _ratio(reuse.elsewhere_tokens, prompt_tokens),
        },
        "goodput_rps": _ratio(sum(ttft_s <= slo_s for ttft_s in ttfts_s), window_s),
        "dispersion": _dispersion(done, replicas),
        "moves": _moves(done),
        "splits": 0,  # a session's turns follow each other here
        "errors": len(replay.errors),
        "prediction_error_ratio": _prediction_error(done),
        "duration_s": window_s,
    }


def _percentiles(values_s: Sequence[float]) -> dict[str, float | None]:
    shares = (50, 90, 99)
    found = np.percentile(values_s, shares).tolist() if values_s else [None] * len(shares)
    return {f"p{share}": value for share, value in zip(shares, found, strict=True)}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _dispersion(exchanges: Sequence[Exchange], replicas: int) -> float | None:
    """Return variance/mean of requests per replica, averaged over the time in which any runs.

    A request runs where it was answered, from its sending to its end; a wait at the router is
    part of that. 0 is even; n requests that are all on one of r replicas make n x (1 - 1 / r).
    """
    moments = sorted(
        moment
        for one in exchanges
        for moment in ((one.sent_s, 1, one.replica), (one.ended_s, -1, one.replica))
    )
    running: Counter[ReplicaId] = Counter()
    weighted = busy_s = 0.0
    for (at_s, change, replica), (next_s, *_) in pairwise(moments):
        running[replica] += change
        mean = running.total() / replicas
        if mean:
            square_mean = sum(count**2 for count in running.values()) / replicas
            weighted += (square_mean / mean - mean) * (next_s - at_s)
            busy_s += next_s - at_s
    return _ratio(weighted, busy_s)


def _moves(exchanges: Sequence[Exchange]) -> int:
    """Return how many turns another replica served than the session's last one."""
    homes: dict[SessionId, ReplicaId] = {}
    moves = 0
    for one in exchanges:
        moves += homes.get(one.session, one.replica) != one.replica
        homes[one.session] = one.replica
    return moves


def _prediction_error(exchanges: Sequence[Exchange]) -> float | None:
    """Return the sum of |expected - cached| by prompt tokens, of requests that have both."""
    expected = [
        (abs(one.expected_cached_tokens - one.cached_tokens), len(one.prompt))
        for one in exchanges
        if one.expected_cached_tokens is not None
    ]
    return _ratio(sum(error for error, _ in expected), sum(tokens for _, tokens in expected))
