"""KV that the primary cache evicted comes back from the CPU tier, and is the right KV."""

from collections import defaultdict
from itertools import takewhile
from typing import Any

import httpx
import pytest

from serve_app.http_message import REPLICA_HEADER, SESSION_HEADER
from tests.integration.conftest import BLOCK_TOKENS, PRIMARY_BLOCKS, Service

REPLICA, SESSION = REPLICA_HEADER.decode(), SESSION_HEADER.decode()
CPU_HITS = "vllm:external_prefix_cache_hits_total"
PRIMARY_HITS = "vllm:prefix_cache_hits_total"
PROMPTS = 7
"""However they are parted among two replicas, one has four: more than its primary cache takes."""
MOST = 70
"""So often they are asked at most, until a replica gets one again that it has evicted."""


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

        texts: dict[int, str] = {}
        had: dict[str, list[int]] = defaultdict(list)
        for turn in range(MOST):
            number = turn % PROMPTS
            cpu_hits = service.engine_metric(CPU_HITS)
            primary_hits = service.engine_metric(PRIMARY_HITS)
            replica, text, prompt_tokens, cached = ask(number)
            assert texts.setdefault(number, text) == text
            assert prompt_tokens * 4 > 2 * PRIMARY_BLOCKS * BLOCK_TOKENS
            since = list(takewhile(lambda one: one != number, reversed(had[replica])))  # noqa: B023
            if number in had[replica] and len(set(since)) >= 3:  # each took half of the cache
                break
            had[replica].append(number)
        else:
            pytest.fail("no replica got a prompt that it had evicted")
        assert cached >= prompt_tokens - BLOCK_TOKENS
        assert service.engine_metric(CPU_HITS) - cpu_hits == cached
        assert service.engine_metric(PRIMARY_HITS) == primary_hits
        assert len(set(texts.values())) == len(texts) == PROMPTS
