"""KV that the primary cache evicted comes back from the CPU tier, and is the right KV."""

from typing import Any

import httpx

from tests.integration.conftest import BLOCK_TOKENS, PRIMARY_BLOCKS, Service

SESSION = "kv-offload"
CPU_HITS = "vllm:external_prefix_cache_hits_total"
PRIMARY_HITS = "vllm:prefix_cache_hits_total"


def _prompt(number: int) -> str:
    lines = [f"file{i}.py defines function f{i}(x) returning x+{i}." for i in range(150)]
    return f"You are coding agent {number}. " + " ".join(lines)


def test_an_evicted_session_comes_back_from_the_cpu_tier(service: Service) -> None:
    """Its prefix is a hit of the CPU tier alone, and greedy decoding says the same as at first."""
    with httpx.Client(base_url=service.url, timeout=120) as http:

        def ask(number: int) -> tuple[str, int, int]:
            body: dict[str, Any] = {
                "model": "tiny",
                "prompt": _prompt(number),
                "max_tokens": 24,
                "temperature": 0,
                "ignore_eos": True,
            }
            # One session id for all of them: they share a replica and compete for its cache.
            headers = {"X-Session-ID": SESSION}
            answer = http.post("/v1/completions", json=body, headers=headers).json()
            usage = answer["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            return answer["choices"][0]["text"], usage["prompt_tokens"], cached

        first, prompt_tokens, cached = ask(0)
        assert cached == 0
        others = [ask(number)[0] for number in range(1, 4)]
        assert prompt_tokens * 4 > 2 * PRIMARY_BLOCKS * BLOCK_TOKENS

        cpu_hits = service.engine_metric(CPU_HITS)
        primary_hits = service.engine_metric(PRIMARY_HITS)
        again, _, cached = ask(0)
        assert cached >= prompt_tokens - BLOCK_TOKENS
        assert service.engine_metric(CPU_HITS) - cpu_hits == cached
        assert service.engine_metric(PRIMARY_HITS) == primary_hits
        assert again == first
        assert len({first, *others}) == 4
