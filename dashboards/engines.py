"""vLLM's engines, one by one."""

from dashboards import vllm
from dashboards.panel import Dashboard, Panel, Query, Row, Unit
from dashboards.promql import quantile, rate


def _p90(title: str, help_: str, histogram: str) -> Panel:
    expr = quantile(0.9, histogram, by=vllm.REPLICA)
    return Panel(f"{title}, p90", help_, Unit.SECONDS, (Query(expr, "{{ReplicaId}}"),))


def _by_replica(expr: str, empty_while: str | None = None) -> tuple[Query, ...]:
    return (Query(expr, "{{ReplicaId}}", empty_while),)


LOAD = Row(
    "Load",
    (
        Panel(
            "Running requests",
            "In the engine's batch.",
            Unit.NUMBER,
            _by_replica(f"sum by ({vllm.REPLICA}) ({vllm.RUNNING})"),
        ),
        Panel(
            "Waiting requests",
            "In the engine's own queue; the router keeps those back that it has no memory for.",
            Unit.NUMBER,
            _by_replica(f"sum by ({vllm.REPLICA}) ({vllm.WAITING})"),
        ),
        Panel(
            "Prompt tokens computed",
            "Per second: what was not found cached.",
            Unit.PER_SECOND,
            _by_replica(rate(vllm.PROMPT_TOKENS_BY_SOURCE + vllm.COMPUTED, by=vllm.REPLICA)),
        ),
        Panel(
            "Tokens generated",
            "Per second.",
            Unit.PER_SECOND,
            _by_replica(rate(vllm.GENERATED_TOKENS, by=vllm.REPLICA)),
        ),
        Panel(
            "Tokens per step, p50",
            "Prompt and generated tokens that the engine takes into one step.",
            Unit.NUMBER,
            _by_replica(quantile(0.5, vllm.BATCH_TOKENS, by=vllm.REPLICA)),
        ),
        Panel(
            "Requests finished",
            "By reason.",
            Unit.PER_SECOND,
            (Query(rate(vllm.FINISHED, by="finished_reason"), "{{finished_reason}}"),),
        ),
    ),
)

TIMES = Row(
    "Times",
    (
        _p90("Time to first token", "From arrival in the engine.", vllm.TTFT),
        _p90("Time in the engine's queue", "Before the first step.", vllm.QUEUE_TIME),
        _p90("Prefill", "From the first step to the first token.", vllm.PREFILL_TIME),
        _p90("Decode", "From the first token to the last.", vllm.DECODE_TIME),
        _p90("Between two tokens", "Long where prefills run beside.", vllm.INTER_TOKEN),
        _p90("Whole request", "From arrival in the engine to the last token.", vllm.END_TO_END),
    ),
)

ENGINES = Dashboard(
    "warmturn-engines", "warmturn: engines", "What vLLM says of each replica.", (LOAD, TIMES)
)
