"""Every metric that warmturn adds to Ray's and vLLM's: declared here, once."""

from functools import partial

from policies.demands import DEMANDS
from policies.misses import Miss
from policies.observer import SIZES
from policies.prefix_break import Kind as BreakKind
from policies.types import Rule, Tier
from serve_app.audit_verdict import Verdict
from serve_app.metric import Kind, Metric, Owner
from serve_app.record_counts import Unrecorded

_gateway_count = partial(Metric, Owner.GATEWAY, Kind.COUNTER)
_router_count = partial(Metric, Owner.ROUTER, Kind.COUNTER)
_router_gauge = partial(Metric, Owner.ROUTER, Kind.GAUGE)

_TIER = {"tier": tuple(tier.name.lower() for tier in Tier)}
_BREAK = {"kind": tuple(BreakKind)}
_REPLICA: dict[str, tuple[str, ...]] = {"replica": ()}
"""Those that report at the time."""

# Of each gateway.

VOLATILE_LINES_REMOVED = _gateway_count(
    "warmturn_volatile_lines_removed",
    "lines",
    "Lines removed from system prompts because they break the prefix cache.",
    {"pattern": ()},  # as configured
)
PROMPTS_NOT_RENDERED = _gateway_count(
    "warmturn_prompts_not_rendered",
    "turns",
    "Turns whose prompt could not be rendered before they were routed.",
    {"reason": ()},  # kinds of content and of vLLM's errors
)
PREFIX_BREAKS = _gateway_count(
    "warmturn_prefix_breaks",
    "turns",
    "Turns whose prompt does not begin with that of an earlier turn.",
    _BREAK,
)
PREFIX_BREAK_TOKENS = _gateway_count(
    "warmturn_prefix_break_tokens",
    "tokens",
    "Tokens of earlier prompts that prefix breaks made worthless.",
    _BREAK,
)
ROUTER_FALLBACKS = _gateway_count(
    "warmturn_router_fallbacks",
    "turns",
    "Turns placed by rendezvous hashing because the router actor was silent.",
)
TTFT_SLO_S = 5.0
"""A first byte that comes later is late to dashboards and alerts; a boundary of TTFT."""

TTFT = Metric(
    Owner.GATEWAY,
    Kind.HISTOGRAM,
    "warmturn_ttft_seconds",
    "seconds",
    "From a streamed turn's arrival at the gateway to the first byte of its answer, or until its "
    "client left without one, if that was late already.",
    boundaries=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0),
)
ERRORS = _gateway_count(
    "warmturn_errors",
    "requests",
    "Requests that the gateway itself answered with an error, or whose stream it had to end so.",
    {"status": ()},  # those of serve_app/passthrough.py
)

# Of each replica.

KV_AUDITS = Metric(
    Owner.REPLICA,
    Kind.COUNTER,
    "warmturn_kv_audits",
    "audits",
    "Prompts computed once more to see whether cached KV is right, by what came of it.",
    {"verdict": tuple(Verdict)},
)

# Of the router, since it started.

DECISIONS = _router_count(
    "warmturn_decisions",
    "decisions",
    "Decisions by the rule that chose the replica.",
    {"rule": tuple(Rule)},
)
WAITED_TURNS = _router_count(
    "warmturn_waited_turns", "turns", "Turns that waited for a replica with room, and got one."
)
WAITED_SECONDS = _router_count(
    "warmturn_waited_seconds", "seconds", "How long those waited, in sum."
)
REFUSED_TURNS = _router_count(
    "warmturn_refused_turns",
    "turns",
    "Turns that were turned away, as their session found no place among those that run.",
)
UNPLACED_TURNS = _router_count(
    "warmturn_unplaced_turns", "turns", "Turns that were given up while they waited."
)
PROMPT_TOKENS = _router_count(
    "warmturn_prompt_tokens", "tokens", "Tokens of the prompts that engines took."
)
CACHED_TOKENS = _router_count(
    "warmturn_cached_tokens", "tokens", "Those that engines found cached, in any tier."
)
HIT_TOKENS = _router_count(
    "warmturn_hit_tokens",
    "tokens",
    "Tokens of prompts by the tier that had them cached, of turns whose prompt was read.",
    _TIER,
)
MISSED_TOKENS = _router_count(
    "warmturn_missed_tokens",
    "tokens",
    "Those that were prefilled: in no earlier prompt, evicted since, or cached elsewhere.",
    {"kind": tuple(Miss)},
)
EXPECTED_CACHED_TOKENS = _router_count(
    "warmturn_expected_cached_tokens",
    "tokens",
    "Those that the router expected to be cached where it sent the turn.",
    _TIER,
)
EXPECTED_TTFT_SECONDS = _router_count(
    "warmturn_expected_ttft_seconds",
    "seconds",
    "From arrival at the replica to the first token, as decisions expected it, in sum.",
)
ACTUAL_TTFT_SECONDS = _router_count(
    "warmturn_actual_ttft_seconds",
    "seconds",
    "From arrival at the replica to the first token of the same turns, in sum.",
)
COMPARED_TURNS = _router_count(
    "warmturn_compared_turns", "turns", "Turns in the expected and the actual sum of seconds."
)
RECORDED_TURNS = _router_count(
    "warmturn_recorded_turns", "turns", "Turns that were written to the file of recorded turns."
)
UNRECORDED_TURNS = _router_count(
    "warmturn_unrecorded_turns",
    "turns",
    "Turns that should have been and are not: not seen to arrive, too many at a time, or failed.",
    {"reason": tuple(Unrecorded)},
)
STORED_BLOCKS = _router_count(
    "warmturn_stored_blocks", "blocks", "Blocks of KV that came to a tier.", _TIER
)
REMOVED_BLOCKS = _router_count(
    "warmturn_removed_blocks", "blocks", "Blocks of KV that were evicted from a tier.", _TIER
)

# Of the router, now.

START_TIME = _router_gauge(
    "warmturn_router_start_time_seconds", "seconds", "When it started, in seconds since 1970."
)
SESSIONS = _router_gauge("warmturn_sessions", "sessions", "Sessions that are known.")
INDEX_BLOCKS = _router_gauge(
    "warmturn_index_blocks", "blocks", "Blocks that are known to be anywhere."
)
SHARED_BLOCKS = _router_gauge(
    "warmturn_shared_blocks", "blocks", "Blocks that are known to be in the shared tier."
)
WAITING_REQUESTS = _router_gauge(
    "warmturn_waiting_requests", "requests", "Requests that wait for a replica with room."
)
HELD_REQUESTS = _router_gauge(
    "warmturn_held_requests", "requests", "Requests that wait for their session's place."
)
RUNNING_SESSIONS = _router_gauge(
    "warmturn_running_sessions",
    "sessions",
    "Sessions that run: they have a turn, or had one not long ago.",
)
SESSION_LIMIT = _router_gauge(
    "warmturn_session_limit",
    "sessions",
    "Sessions that may run; no such series while as many may as come.",
)
LATE_RATIO = _router_gauge(
    "warmturn_late_ratio",
    "ratio",
    "Share of recent turns whose first token came too late; 0 where they are too few.",
)
DISPERSION = _router_gauge(
    "warmturn_dispersion_ratio",
    "ratio",
    "Variance by mean of requests across replicas: 1 if spread at random; 0 while there are none.",
)
REPLICAS = _router_gauge("warmturn_replicas", "replicas", "Replicas that report.")
REPLICA_SYNCED = _router_gauge(
    "warmturn_replica_synced", "bool", "Whether the index knows all blocks of a replica.", _REPLICA
)
REPLICA_DRAINING = _router_gauge(
    "warmturn_replica_draining", "bool", "Whether a replica is to get no more turns.", _REPLICA
)
REPLICA_REQUESTS = _router_gauge(
    "warmturn_replica_requests",
    "requests",
    "Requests of a replica, as it reports or as they are booked, whichever is more.",
    _REPLICA,
)
REPLICA_RESIDENT_SESSIONS = _router_gauge(
    "warmturn_replica_resident_sessions",
    "sessions",
    "Sessions between turns that live on a replica, each by how likely it is to return.",
    _REPLICA,
)
REPLICA_UNCACHED_TOKENS = _router_gauge(
    "warmturn_replica_uncached_tokens",
    "tokens",
    "Tokens booked on a replica and not yet prefilled.",
    _REPLICA,
)
REPLICA_PINNED = _router_gauge(
    "warmturn_replica_pinned_ratio",
    "ratio",
    "Share of a replica's GPU blocks that requests use.",
    _REPLICA,
)
REPLICA_HELD_BLOCKS = _router_gauge(
    "warmturn_replica_held_blocks",
    "blocks",
    "Blocks that a replica holds in its own memories.",
    _REPLICA,
)

REUSE_RATIO = _router_gauge(
    "warmturn_reuse_ratio",
    "ratio",
    "Share of recent prompts that so many times the memory there is would have had cached.",
    {"memory": tuple(SIZES)},
)
WISHED_REPLICAS = _router_gauge(
    "warmturn_autoscaling_wished_replicas",
    "replicas",
    "Replicas that there should be, whether or not the cluster has room for them.",
)
DEMANDED_REPLICAS = _router_gauge(
    "warmturn_autoscaling_demanded_replicas",
    "replicas",
    "Replicas that each demand calls for: the largest one counts.",
    {"demand": tuple(one.__name__ for one in DEMANDS)},
)
SURPRISES = _router_count(
    "warmturn_autoscaling_surprises",
    "replicas",
    "Replicas that were stopped in place of those that had drained for it.",
)

METRICS = {one.name: one for one in tuple(globals().values()) if isinstance(one, Metric)}
