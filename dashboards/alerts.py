"""What somebody has to be told of, and what to do then."""

from dashboards.promql import counted
from dashboards.recordings import DISPERSION_MEAN, HITS_OF_EXPECTED, hits, missed
from dashboards.rule import Alert, Condition, Severity
from dashboards.slo import BUDGET_RATIO, OBJECTIVE_RATIO, turns
from serve_app.audit_verdict import Verdict
from serve_app.metrics import (
    DECISIONS,
    KV_AUDITS,
    REFUSED_TURNS,
    REPLICA_DRAINING,
    REPLICA_SYNCED,
    ROUTER_FALLBACKS,
    TTFT_SLO_S,
    WAITING_REQUESTS,
)

ROUTER_JOB = "warmturn-router"
"""The scrape job of /warmturn/metrics in prometheus.yml."""

FAST_BURN, SLOW_BURN = 14.4, 6.0
"""Times the error budget: a month's in two days, and in five (Google's SRE workbook)."""

FEW = "> 20"
"""Turns from which on a share of them says something."""

_SLO = f"{OBJECTIVE_RATIO:.0%} of streamed turns get their first token in {TTFT_SLO_S:g} s"
_BURN_RUNBOOK = (
    "See on 'overview' whether turns are late or fail (429: full, 503: replicas die, 504: too long "
    "answers). Late: see there and on 'engines' whether they wait (router, engine queue), prefill "
    "much (hits fell) or decode slowly. Waiting: add replicas. Fewer hits: the runbook of "
    "WarmturnHitRatioCollapse. One turn: /warmturn/decisions/<x-request-id>."
)


def _burn(name: str, severity: Severity, times: float, long: str, short: str, for_: str) -> Alert:
    bad = f"> {times * BUDGET_RATIO:g}"
    return Alert(
        name,
        severity,
        (Condition(missed(long), bad), Condition(missed(short), bad), Condition(turns(long), FEW)),
        for_,
        f"Turns are late or fail: the budget of '{_SLO}' burns {times:g} times too fast.",
        _BURN_RUNBOOK,
    )


ALERTS = (
    Alert(
        "WarmturnHitRatioCollapse",
        Severity.PAGE,
        (
            Condition(f"{hits('10m')} / ({hits('6h')} > 0.1)", "< 0.5"),
            Condition(f"sum(increase({DECISIONS.series}[10m]))", FEW),
        ),
        "10m",
        "Prompts are found cached less than half as often as in the last six hours.",
        "See 'routing': broken prefixes by kind (a client changed its prompts: /warmturn/decisions "
        "names the message), moves (replicas came or went), cached share expected against actual "
        "(index), and on 'KV cache' evictions (too little memory for the sessions that live).",
    ),
    Alert(
        "WarmturnHitsUnexpected",
        Severity.TICKET,
        (Condition(HITS_OF_EXPECTED, "< 0.7"),),
        "15m",
        "Engines find much less cached than the router expects: its index is wrong.",
        "See whether all replicas are in sync ('routing'), and whether requests ask for logprobs "
        "of their prompt or carry cache salts, which engines do not reuse. A replica's snapshot is "
        "renewed by restarting it; the whole index by killing the router actor.",
    ),
    Alert(
        "WarmturnDispersionAbovePoisson",
        Severity.TICKET,
        (Condition(DISPERSION_MEAN, "> 1"),),
        "30m",
        "Requests pile up on few replicas, more than if they were placed at random.",
        "See 'routing': requests and resident sessions by replica. Few large sessions: lower "
        "stickiness_s or max_session_concurrency. A replica out of sync or much slower than the "
        "others explains itself there. Many fallbacks: the router actor is silent.",
    ),
    Alert(
        "WarmturnRouterFallback",
        Severity.PAGE,
        (Condition(counted(ROUTER_FALLBACKS.series, "5m"), "> 0"),),
        "7m",
        "Turns are placed without the router, by hashing.",
        "The router actor is dead, restarting or overloaded. /warmturn/replicas says whether it "
        "answers; `ray list actors --filter name=router:...` where it runs and how often it "
        "restarted; its log is worker-*.err on that node. Slow but alive: raise router_timeout_s.",
    ),
    Alert(
        "WarmturnRouterSilent",
        Severity.PAGE,
        (Condition(f'up{{job="{ROUTER_JOB}"}}', "== 0"),),
        "2m",
        "No gateway serves the router's metrics.",
        "A 503 there means that the router actor does not answer: as WarmturnRouterFallback. "
        "Nothing there at all: `serve status`, and Serve's proxy on that node.",
    ),
    Alert(
        "WarmturnReplicaUnsynced",
        Severity.TICKET,
        (Condition(REPLICA_SYNCED.series, "== 0"),),
        "5m",
        "The index does not know what replica {{ $labels.replica }} holds.",
        "It is routed to by session and load meanwhile. Its log says whether KV events are lost "
        "('batches of KV events are lost') or the router hears nothing of it; restart the replica "
        "if it goes on.",
    ),
    Alert(
        "WarmturnKvWrong",
        Severity.PAGE,
        (Condition(counted(f'{KV_AUDITS.series}{{verdict="{Verdict.DIFFERS}"}}', "1h"), "> 0"),),
        "1m",
        "Cached KV gave another answer than computing: answers of late may be wrong.",
        "The replica empties its caches by itself; 'KV cache', audits, says which one it is, and "
        "its log 'cached KV is wrong'. If it also says 'could not be emptied: restart', do. Again "
        "on one replica alone: its node's memory; drain it. On several, with kv_shared: empty that "
        "directory. After a change of vLLM or its settings: go back, and report it to vLLM; "
        "engine.enable_prefix_caching: false serves on meanwhile.",
    ),
    Alert(
        "WarmturnWaiting",
        Severity.TICKET,
        (Condition(f"min_over_time({WAITING_REQUESTS.series}[5m])", "> 0"),),
        "10m",
        "Requests wait at the router all the time: the replicas of their choice have no room.",
        "See on 'routing' whether requests are many on all replicas: then add replicas, or memory "
        f"for KV, but see first that none is draining ({REPLICA_DRAINING.series}) or gone "
        "('overview', fleet). Many on one alone: a few sessions share it, and waiting for their KV "
        "costs less than computing it elsewhere; /warmturn/decisions/<x-request-id> has the "
        "seconds.",
    ),
    Alert(
        "WarmturnTurnedAway",
        Severity.PAGE,
        (Condition(f"sum(increase({REFUSED_TURNS.series}[5m]))", "> 0"),),
        "5m",
        "Turns are turned away: more sessions want to run than can in time.",
        "Those that run go on in time; the others get 429 after max_park_s. Add replicas, or "
        "memory for KV. See 'routing', overload: if few sessions run and many of their turns are "
        "late, replicas are slower than ttft_slo_s allows.",
    ),
    _burn("WarmturnSloBurnFast", Severity.PAGE, FAST_BURN, "1h", "5m", "2m"),
    _burn("WarmturnSloBurnSlow", Severity.TICKET, SLOW_BURN, "6h", "30m", "15m"),
)
