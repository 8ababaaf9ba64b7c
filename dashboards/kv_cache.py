"""Where KV lies, what comes and goes, and what the lower tiers carry."""

from dashboards import vllm
from dashboards.overview import NO_RESTORE
from dashboards.panel import Dashboard, Panel, Query, Row, Unit
from dashboards.promql import rate, ratio
from dashboards.shared_tier import SHARED_TIER
from serve_app.metrics import (
    CACHED_TOKENS,
    INDEX_BLOCKS,
    KV_AUDITS,
    PROMPT_TOKENS,
    REMOVED_BLOCKS,
    REPLICA_HELD_BLOCKS,
    REPLICA_PINNED,
    REUSE_RATIO,
    SHARED_BLOCKS,
    STORED_BLOCKS,
)

NO_OFFLOAD = "kv_offload_gib is 0"
NO_AUDIT = "no turn was audited yet"

USE = Row(
    "Use",
    (
        Panel(
            "GPU KV cache that requests use, by replica",
            "As the engine says. What is cached beyond that is free to be evicted.",
            Unit.RATIO,
            (Query(f"max by ({vllm.REPLICA}) ({vllm.KV_USE})", "{{ReplicaId}}"),),
        ),
        Panel(
            "The same as the router counts it",
            REPLICA_PINNED.help,
            Unit.RATIO,
            (Query(REPLICA_PINNED.series, "{{replica}}"),),
        ),
        Panel(
            "CPU tier in use, by replica",
            "Full is normal: it keeps what was used last. Evictions below say whether it is small.",
            Unit.RATIO,
            (Query(f"max by ({vllm.REPLICA}) ({vllm.CPU_USE})", "{{ReplicaId}}", NO_OFFLOAD),),
        ),
        Panel(
            "Blocks held, by replica",
            REPLICA_HELD_BLOCKS.help + " What replicas hold in common is counted once in the sum.",
            Unit.NUMBER,
            (
                Query(REPLICA_HELD_BLOCKS.series, "{{replica}}"),
                Query(INDEX_BLOCKS.series, "anywhere"),
                Query(SHARED_BLOCKS.series, "shared tier"),
            ),
        ),
    ),
)

TRAFFIC = Row(
    "Coming and going",
    (
        Panel(
            "Blocks stored, by tier",
            STORED_BLOCKS.help,
            Unit.PER_SECOND,
            (Query(rate(STORED_BLOCKS.series, by="tier"), "{{tier}}"),),
        ),
        Panel(
            "Blocks evicted, by tier",
            "From the GPU they are in the CPU tier still; from the last tier they are gone.",
            Unit.PER_SECOND,
            (Query(rate(REMOVED_BLOCKS.series, by="tier"), "{{tier}}"),),
        ),
        Panel(
            "Offload traffic",
            "Bytes between GPU memory and the tiers below it.",
            Unit.BYTES_PER_SECOND,
            (
                Query(rate(vllm.OFFLOAD_STORED_BYTES), "stored", NO_OFFLOAD),
                Query(rate(vllm.OFFLOAD_LOADED_BYTES), "loaded", NO_RESTORE),
            ),
        ),
        Panel(
            "Offload speed",
            "Bytes per second of copying: what a restore costs.",
            Unit.BYTES_PER_SECOND,
            (
                Query(
                    ratio(rate(vllm.OFFLOAD_STORED_BYTES), rate(vllm.OFFLOAD_STORE_TIME)),
                    "storing",
                    NO_OFFLOAD,
                ),
                Query(
                    ratio(rate(vllm.OFFLOAD_LOADED_BYTES), rate(vllm.OFFLOAD_LOAD_TIME)),
                    "loading",
                    NO_RESTORE,
                ),
            ),
        ),
        Panel(
            "Cached share of prompts, and what other sizes of memory would give",
            "Where more memory gives little, more sessions can share what there is; where even an "
            "unlimited one does, prompts break or are new. Of the autoscaler's window_s.",
            Unit.RATIO,
            (
                Query(REUSE_RATIO.series, "{{memory}} x what there is"),
                Query(ratio(rate(CACHED_TOKENS.series), rate(PROMPT_TOKENS.series)), "as it was"),
            ),
        ),
        Panel(
            "Preemptions",
            "Requests whose KV was taken from them in the middle, and is computed again.",
            Unit.PER_SECOND,
            (Query(rate(vllm.PREEMPTIONS), "preempted", "no request was preempted"),),
        ),
    ),
)

AUDITS = Row(
    "Is it right?",
    (
        Panel(
            "Audits, by replica and verdict",
            KV_AUDITS.help + " Differs: it was wrong, and was thrown away. Unstable: the engine "
            "computes the same prompt differently each time. Uncached: evicted too soon to tell.",
            Unit.NUMBER,
            (
                Query(
                    f"sum by (replica, verdict) ({KV_AUDITS.series})",
                    "{{replica}} {{verdict}}",
                    NO_AUDIT,
                ),
            ),
        ),
    ),
)

KV_CACHE = Dashboard(
    "warmturn-kv-cache",
    "warmturn: KV cache",
    "Use, evictions and traffic of the KV cache's tiers.",
    (USE, TRAFFIC, SHARED_TIER, AUDITS),
)
