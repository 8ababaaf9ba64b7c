"""KV that the primary cache evicted comes back from the CPU tier, and is the right KV."""

from typing import Any

import httpx

from serve_app.http_message import REPLICA_HEADER, SESSION_HEADER
from tests.integration.conftest import BLOCK_TOKENS, PRIMARY_BLOCKS, Service

REPLICA, SESSION = REPLICA_HEADER.decode(), SESSION_HEADER.decode()
CPU_HITS = "vllm:external_prefix_cache_hits_total"
PRIMARY_HITS = "vllm:prefix_cache_hits_total"
MOST = 30
"""So many other prompts are asked at most, until one replica has had enough of them."""


def _prompt(number: int) -> str:
    lines = [f"file{i}.py defines function f{i}(x) returning x+{i}." for i in range(150)]
    return f"You are coding agent {number}. " + " ".join(lines)


def test_an_evicted_session_comes_back_from_the_cpu_tier(service: Service) -> None:
    """Its prefix is a hit of the CPU tier alone, and greedy decoding says the same as at first."""
    with httpx.Client(base_url=service.url, timeout=120) as http:

        def ask(number: int) -> tuple[str, str, int, int]:
            """Return who answered, what, and of how many prompt tokens how many were cached."""
            body: dict[str, Any] = {
                "model": "tiny",
                "prompt": _prompt(number),
                "max_tokens": 24,
                "temperature": 0,
                "ignore_eos": True,
            }
            response = http.post("/v1/completions", json=body, headers={SESSION: "kv-offload"})
            answer = response.raise_for_status().json()
            usage = answer["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            text = answer["choices"][0]["text"]
            return response.headers[REPLICA], text, usage["prompt_tokens"], cached

        home, first, prompt_tokens, cached = ask(0)
        assert cached == 0
        assert prompt_tokens * 4 > 2 * PRIMARY_BLOCKS * BLOCK_TOKENS
        others: list[str] = []
        replica = None
        while replica != home:  # else the session moved, and begins anew there
            home, evictions = replica or home, 0
            while evictions < 3:  # each takes half of the cache of whoever gets it
                assert len(others) < MOST
                other, text, *_ = ask(len(others) + 1)
                others.append(text)
                evictions += other == home
            cpu_hits = service.engine_metric(CPU_HITS)
            primary_hits = service.engine_metric(PRIMARY_HITS)
            replica, again, _, cached = ask(0)
            assert again == first
        assert cached >= prompt_tokens - BLOCK_TOKENS
        assert service.engine_metric(CPU_HITS) - cpu_hits == cached
        assert service.engine_metric(PRIMARY_HITS) == primary_hits
        assert len({first, *others}) == 1 + len(others)
