"""Whether users are served well: latency, throughput, and how much KV is reused."""

from dashboards import vllm
from dashboards.panel import Dashboard, Panel, Query, Row, Unit
from dashboards.promql import quantile, rate, ratio
from dashboards.slo import missed_ratio
from serve_app.metrics import (
    CACHED_TOKENS,
    DISPERSION,
    ERRORS,
    HIT_TOKENS,
    MISSED_TOKENS,
    PREFIX_BREAK_TOKENS,
    PROMPT_TOKENS,
    REPLICAS,
    SESSIONS,
    TTFT,
    TTFT_SLO_S,
    WAITING_REQUESTS,
)

ALL_SOURCES = rate(vllm.PROMPT_TOKENS)
NO_RESTORE = "nothing came back from a lower tier yet"

LATENCY = Row(
    "Latency",
    (
        Panel(
            "Time to first token",
            "Of streamed turns, from their arrival at the gateway to the first byte of the answer.",
            Unit.SECONDS,
            tuple(Query(quantile(q, TTFT.series), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)),
        ),
        Panel(
            "Time per output token",
            "After the first one.",
            Unit.SECONDS,
            tuple(
                Query(quantile(q, vllm.TIME_PER_OUTPUT_TOKEN), f"p{q * 100:g}")
                for q in (0.5, 0.9, 0.99)
            ),
        ),
        Panel(
            f"Turns that miss the objective (first token after {TTFT_SLO_S:g} s, or an error)",
            "Share of streamed turns and errors.",
            Unit.RATIO,
            (Query(missed_ratio(), "missed"),),
        ),
        Panel(
            "Errors",
            "The gateway's own, by status. 429: all is full. 503: a replica was lost. 504: no "
            "whole answer in time.",
            Unit.PER_SECOND,
            (Query(rate(ERRORS.series, by="status"), "{{status}}", "no request failed"),),
        ),
    ),
)

REUSE = Row(
    "Reuse of KV",
    (
        Panel(
            "Prompt tokens found cached, by tier",
            "Share of all prompt tokens. The primary tier is GPU memory; lower ones are CPU memory "
            "and what replicas share.",
            Unit.RATIO,
            (
                Query(
                    ratio(rate(vllm.PROMPT_TOKENS_BY_SOURCE + vllm.PRIMARY_HITS), ALL_SOURCES),
                    "primary",
                    "no prompt was found cached yet",
                ),
                Query(
                    ratio(rate(vllm.PROMPT_TOKENS_BY_SOURCE + vllm.LOWER_HITS), ALL_SOURCES),
                    "lower",
                    NO_RESTORE,
                ),
                Query(ratio(rate(CACHED_TOKENS.series), rate(PROMPT_TOKENS.series)), "any"),
            ),
        ),
        Panel(
            "Tokens per second by what became of them",
            "Of turns whose prompt was read: cached in a tier, or a miss of this kind.",
            Unit.PER_SECOND,
            (
                Query(rate(HIT_TOKENS.series, by="tier"), "{{tier}}"),
                Query(rate(MISSED_TOKENS.series, by="kind"), "{{kind}}"),
            ),
        ),
        Panel(
            "Tokens lost to prefix breaks",
            "Cached tokens of earlier turns that a changed prompt made worthless, by what changed.",
            Unit.PER_SECOND,
            (
                Query(
                    rate(PREFIX_BREAK_TOKENS.series, by="kind"),
                    "{{kind}}",
                    "no turn broke with an earlier one",
                ),
            ),
        ),
    ),
)

THROUGHPUT = Row(
    "Throughput",
    (
        Panel(
            "Tokens per second",
            "Prompt tokens that had to be computed, all of them, and generated ones.",
            Unit.PER_SECOND,
            (
                Query(rate(vllm.PROMPT_TOKENS_BY_SOURCE + vllm.COMPUTED), "prompt, computed"),
                Query(rate(vllm.PROMPT_TOKENS), "prompt"),
                Query(rate(vllm.GENERATED_TOKENS), "generated"),
            ),
        ),
        Panel(
            "Requests",
            "In engines, and waiting at the router for a replica with room.",
            Unit.NUMBER,
            (
                Query(f"sum({vllm.RUNNING})", "running"),
                Query(f"sum({vllm.WAITING})", "waiting in engines"),
                Query(WAITING_REQUESTS.series, "waiting at the router"),
            ),
        ),
        Panel(
            "Fleet",
            "Replicas that report, sessions known, and how unevenly requests are spread.",
            Unit.NUMBER,
            (
                Query(REPLICAS.series, "replicas"),
                Query(SESSIONS.series, "sessions"),
                Query(DISPERSION.series, "dispersion"),
            ),
        ),
    ),
)

OVERVIEW = Dashboard(
    "warmturn-overview",
    "warmturn: overview",
    "Latency, reuse and throughput of the whole service.",
    (LATENCY, REUSE, THROUGHPUT),
)
