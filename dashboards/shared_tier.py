"""What the tier that replicas share gives and takes, and what it fails to."""

from dashboards import vllm
from dashboards.panel import Panel, Query, Row, Unit
from dashboards.promql import rate, ratio

NO_SHARED = "kv_shared is not set, or nothing of the kind has happened yet"

QUERIES = rate(vllm.TIER_QUERIES + vllm.BELOW_CPU)
HITS = rate(vllm.TIER_HITS + vllm.BELOW_CPU)


def _queries(*lines: tuple[str, str]) -> tuple[Query, ...]:
    return tuple(Query(expr, legend, NO_SHARED) for legend, expr in lines)


SHARED_TIER = Row(
    "Shared tier",
    (
        Panel(
            "Blocks asked of the shared tier",
            "What the replica had in no memory of its own. A prompt that is not there counts with "
            "all its blocks, though one file is looked for.",
            Unit.PER_SECOND,
            _queries(("asked", QUERIES), ("found", HITS)),
        ),
        Panel(
            "Blocks that the shared tier did not give, by cause",
            "Not there is normal for what is new. Damaged files were removed. Too slow: found, but "
            "computing them was faster; then the tier is left alone for a while.",
            Unit.PER_SECOND,
            _queries(
                ("not there", f"{QUERIES} - ({HITS} or vector(0))"),
                ("damaged", rate(vllm.SHARED_DAMAGED)),
                ("too slow", rate(vllm.SHARED_ABANDONED)),
            ),
        ),
        Panel(
            "Shared tier traffic",
            "Bytes between CPU memory and the tier, of all replicas.",
            Unit.BYTES_PER_SECOND,
            _queries(
                ("written", rate(vllm.TIER_WRITTEN_BYTES)),
                ("read", rate(vllm.TIER_READ_BYTES)),
            ),
        ),
        Panel(
            "Shared tier speed",
            "Bytes per second of one job, with its wait for others: what a fetch costs.",
            Unit.BYTES_PER_SECOND,
            _queries(
                ("writing", ratio(rate(vllm.TIER_WRITTEN_BYTES), rate(vllm.TIER_WRITE_TIME))),
                ("reading", ratio(rate(vllm.TIER_READ_BYTES), rate(vllm.TIER_READ_TIME))),
            ),
        ),
        Panel(
            "Blocks not stored in the shared tier, and files removed from it",
            "Not stored: the disk was full, gone, or slower than KV is made. Removed to make room: "
            "at `kv_shared.gib` this is normal.",
            Unit.PER_SECOND,
            _queries(
                ("not stored", rate(vllm.SHARED_NOT_STORED)),
                ("removed", rate(vllm.SHARED_EVICTED)),
            ),
        ),
    ),
)
