"""One replica as a candidate for one request: all that the scorers and rules look at."""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.in_flight import InFlight, Load
from policies.match import NO_MATCH, Match
from policies.prefix_index import PrefixIndex
from policies.releases import Release
from policies.residency import NO_RESIDENTS, Residents
from policies.sessions import Sessions
from policies.types import ReplicaId, ReplicaState, Request, Tier


def requests(state: ReplicaState, load: Load) -> int:
    """Return how many requests a replica has, by its own report or by ours, whichever is more."""
    return max(state.running + state.waiting, load.prefilling + load.decoding)


def is_open(state: ReplicaState, load: Load) -> bool:
    """Tell whether a replica takes requests."""
    return not state.draining and requests(state, load) < state.max_requests


def pinned_blocks(state: ReplicaState, load: Load) -> int:
    """Return the GPU blocks that requests use, by its own report or by ours, whichever is more."""
    return min(state.total_blocks, max(load.blocks, state.total_blocks - state.free_blocks))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica's state, its load, and how much of the request's prompt it can reuse."""

    request: Request
    state: ReplicaState
    match: Match
    load: Load
    residents: Residents
    session_requests: int
    """Requests of the same session in flight here."""
    releases: Sequence[Release]
    """When those that run here release their blocks; left out where there are enough free ones."""
    shared_ratio: float
    """The part of what the fleet holds that is in the shared tier, too."""

    @property
    def replica(self) -> ReplicaId:
        """The replica's id."""
        return self.state.replica

    @property
    def cached_tokens(self) -> dict[Tier, int]:
        """Tokens that it can reuse, by tier."""
        size, match = self.request.block_size, self.match
        return {
            Tier.GPU: match.gpu_blocks * size,
            Tier.CPU: match.cpu_blocks * size,
            Tier.SHARED: match.shared_blocks * size,
        }

    @property
    def uncached_tokens(self) -> int:
        """Tokens that it would prefill; engines always compute the last one."""
        return max(1, self.request.prompt_tokens - self.match.blocks * self.request.block_size)

    @property
    def prefill_s(self) -> float:
        """Seconds that this prefill would take alone."""
        return self.uncached_tokens / self.state.prefill_tokens_per_s

    @property
    def requests(self) -> int:
        """Requests it has, by its own report or by ours, whichever is more."""
        return requests(self.state, self.load)

    @property
    def pinned_blocks(self) -> int:
        """GPU blocks that requests use now, by its own report or by ours, whichever is more."""
        return pinned_blocks(self.state, self.load)

    @property
    def added_blocks(self) -> int:
        """GPU blocks of this prompt that it does not hold yet."""
        return self.request.blocks - self.match.gpu_blocks

    @property
    def computed_blocks(self) -> int:
        """Blocks of this prompt that it holds in no memory of its own, and would add."""
        return self.added_blocks - self.match.cpu_blocks

    @property
    def needed_blocks(self) -> int:
        """GPU blocks that the request would make unavailable to others.

        The cached ones among them are free until then, unless requests of its session use them.
        """
        return self.added_blocks if self.session_requests else self.request.blocks

    @property
    def missing_blocks(self) -> int:
        """Needed blocks that running requests have to release first."""
        total = self.state.total_blocks
        return max(0, min(self.needed_blocks, total) - (total - self.pinned_blocks))

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return is_open(self.state, self.load)

    @property
    def has_room(self) -> bool:
        """Whether the request could run there at once."""
        return self.is_open and self.missing_blocks == 0


def gather_candidates(
    request: Request,
    replicas: Sequence[ReplicaState],
    index: PrefixIndex,
    in_flight: InFlight,
    sessions: Sessions,
    now_s: float,
) -> list[Candidate]:
    """Put together what is known of each replica for a request.

    While the index does not know what a replica holds, that replica is trusted to hold what the
    earlier turns of its own sessions left there.
    """
    matches = index.match(request.hashes)
    residents = sessions.residents(in_flight.sessions(), now_s)
    home, earlier_blocks = None, 0
    if request.session is not None and (session := sessions.get(request.session)):
        home = session.replica
        earlier_blocks = sessions.lineages.extended_blocks(request.session, request.hashes)
    candidates = []
    for state in replicas:
        replica = state.replica
        match = matches.get(replica, NO_MATCH)
        if not state.synced and replica == home:
            match = Match(earlier_blocks)
        load = in_flight.load(replica)
        is_tight = state.total_blocks - pinned_blocks(state, load) < request.blocks
        candidates.append(
            Candidate(
                request=request,
                state=state,
                match=match,
                load=load,
                residents=residents.get(replica, NO_RESIDENTS),
                session_requests=in_flight.session_requests(request.session, replica),
                releases=in_flight.releases(replica, state.hold_s, now_s) if is_tight else (),
                shared_ratio=index.shared_ratio,
            )
        )
    return candidates
