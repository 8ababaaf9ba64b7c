"""Where a request goes: filter the candidates, score them in seconds, pick by the rules."""

from collections.abc import Sequence
from random import Random

from policies.candidate import Candidate
from policies.ranking import Scored, rank
from policies.scorers.kv_locality import own_s
from policies.scorers.queue_depth import queue_depth
from policies.session_rules import Pick, pick
from policies.tunables import Tunables
from policies.types import Booking, Decision, Park, ReplicaId, Rule, Tier


def route(
    candidates: Sequence[Candidate],
    home: ReplicaId | None,
    median_uncached_tokens: float | None,
    tunables: Tunables,
    now_s: float,
    rng: Random,
) -> Decision | Park:
    """Decide where the candidates' request goes, or that it waits.

    `home` is where its session lives, `median_uncached_tokens` the fleet's usual prefill. While the
    replica of its choice has no room for the request it waits, until `max_park_s` after its
    arrival: in the engine's queue it would hold up all behind it, and could not change its mind.
    Raises ValueError where there are no candidates.
    """
    if not candidates:
        msg = "there are no replicas"
        raise ValueError(msg)
    usual_tokens = median_uncached_tokens
    cold = {c.replica for c in candidates if _is_cold(c, usual_tokens, tunables)}
    ranked = rank(_isolate(_filter_open(candidates), cold, tunables), tunables, rng)
    picked = pick(ranked, home, tunables)
    chosen = picked.chosen
    late = ""
    if not chosen.candidate.has_room:
        until_s = chosen.candidate.request.arrived_at_s + tunables.max_park_s
        if now_s < until_s:
            return _park(picked, ranked, until_s)
        late = f"; it found no room in {tunables.max_park_s:g} s"
    split_from = home if picked.rule is Rule.SPLIT else None
    return Decision(
        replicas=(chosen.replica, *(s.replica for s in ranked if s is not chosen)),
        home=split_from or chosen.replica,
        rule=picked.rule,
        reason=picked.reason + late,
        seconds={scored.replica: scored.seconds for scored in ranked},
        cached_tokens=chosen.candidate.cached_tokens,
        ttft_s=queue_depth(chosen.candidate, tunables) + own_s(chosen.candidate),
        booking=_book(chosen.candidate, cold=chosen.replica in cold, parked=False),
    )


def _filter_open(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Leave out full and draining replicas; where there are no others, draining ones at least."""
    return (
        [c for c in candidates if c.is_open]
        or [c for c in candidates if not c.state.draining]
        or candidates
    )


def _is_cold(candidate: Candidate, usual_tokens: float | None, tunables: Tunables) -> bool:
    """Tell whether a prefill is far longer than is usual, and long at all."""
    return (
        usual_tokens is not None
        and candidate.uncached_tokens > tunables.cold_prefill_ratio * usual_tokens
        and candidate.prefill_s > tunables.cold_prefill_least_s
    )


def _isolate(
    candidates: Sequence[Candidate], cold: set[ReplicaId], tunables: Tunables
) -> Sequence[Candidate]:
    """Leave out replicas that have their cold prefills already, if another can take this one."""
    most = tunables.max_cold_prefills
    left = [c for c in candidates if c.replica not in cold or c.load.cold_prefills < most]
    return left if any(c.has_room for c in left) else candidates


def _park(picked: Pick, ranked: Sequence[Scored], until_s: float) -> Park:
    """Wait for the choice; of those that wait, first whose KV is at hand, then the oldest."""
    candidate = picked.chosen.candidate
    request = candidate.request
    mostly_uncached = candidate.uncached_tokens > request.prompt_tokens / 2
    missing, needed = candidate.missing_blocks, candidate.needed_blocks
    return Park(
        until_s=until_s,
        order=(mostly_uncached, request.arrived_at_s),
        reason=f"{picked.reason}; waits, as that lacks {missing} of {needed} blocks "
        f"with {candidate.requests} of {candidate.state.max_requests} requests",
        seconds={scored.replica: scored.seconds for scored in ranked},
        booking=_book(candidate, cold=False, parked=True),
    )


def _book(candidate: Candidate, *, cold: bool, parked: bool) -> Booking:
    return Booking(
        request=candidate.request.request,
        session=candidate.request.session,
        replica=candidate.replica,
        uncached_tokens=candidate.uncached_tokens,
        blocks=candidate.needed_blocks,
        cold=cold,
        parked=parked,
        fetched_tokens=candidate.cached_tokens[Tier.SHARED],
    )
