"""The simulated engine finds cached, and evicts, what a real one does."""

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random

import numpy as np
import pytest
from vllm import SamplingParams
from vllm.distributed.kv_events import BlockRemoved
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.presets import PRESETS
from benchmarks.simulator.progress import Admitted
from benchmarks.simulator.turn import Turn
from policies.block_hash import block_contents, hash_blocks, root_hash
from policies.kv_events import Removed
from policies.types import ReplicaId, Request, RequestId, SessionId, Tier
from serve_app import engine_args
from serve_app.config import AppConfig
from serve_app.kv_event import TIERS
from serve_app.kv_event_stream import Endpoints, Lost, follow, private_endpoints
from serve_app.kv_tiers import place_kv
from tests.integration.conftest import (
    BLOCK_TOKENS,
    PRIMARY_BLOCKS,
    SMALL_ENGINE,
    prepare_engine,
)

HOST_BLOCKS = 320
BLOCK_GIB = 2**-14  # tiny_model.py: keys and values of 4 layers, 2 heads of 32, float32
QUIET_S = 0.6
TOLERANCE_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Workload:
    """Sessions in a random order; each turn appends to the session's last prompt."""

    sessions: int
    turns: int
    first_tokens: tuple[int, int]
    added_tokens: tuple[int, int]
    answers_return: bool
    """Whether a session's next prompt begins with its last one and the answer to it."""
    shared_tokens: int = 0


WORKLOADS = {
    "extended": Workload(2, 10, (900, 1100), (20, 100), answers_return=True),
    "more than the GPU holds": Workload(6, 6, (900, 1500), (20, 200), answers_return=True),
    "more than the CPU tier holds": Workload(14, 3, (600, 1500), (20, 300), answers_return=True),
    "a shared prefix": Workload(
        12, 4, (200, 900), (20, 300), answers_return=True, shared_tokens=500
    ),
    "answers that do not return": Workload(8, 4, (600, 1500), (100, 300), answers_return=False),
}


@dataclass(slots=True)
class Served:
    """What an engine did: each prompt with its cached tokens and the answer, and evictions."""

    prompts: list[list[int]] = field(default_factory=list)
    answers: list[list[int]] = field(default_factory=list)
    cached_tokens: list[int] = field(default_factory=list)
    evicted: Counter[Tier] = field(default_factory=Counter)


class RealEngine:
    """vLLM with small caches, and a count of what leaves them."""

    def __init__(self, engine: AsyncLLM) -> None:
        self.engine = engine
        self.evicted: Counter[Tier] = Counter()
        self._batches = 0
        self._asked = 0

    async def follow(self, endpoints: Endpoints) -> None:
        """Count evictions."""
        async with aclosing(follow(endpoints)) as stream:
            async for batch in stream:
                assert not isinstance(batch, Lost)
                self._batches += 1
                for event in batch:
                    if isinstance(event, BlockRemoved):
                        self.evicted[TIERS[event.medium]] += len(event.block_hashes)

    async def serve(self, workload: Workload, rng: Random) -> Served:
        """Serve a workload's turns one after another, beginning with empty caches."""
        assert await self.engine.reset_prefix_cache(reset_connector=True)
        self.evicted.clear()
        served = Served()
        shared = _text(rng, workload.shared_tokens)
        contexts = [
            shared + _text(rng, rng.randint(*workload.first_tokens))
            for _ in range(workload.sessions)
        ]
        order = [session for session in range(workload.sessions) for _ in range(workload.turns)]
        rng.shuffle(order)
        for session in order:
            prompt = contexts[session]
            answer, cached_tokens = await self._ask(prompt, rng.randint(1, 24))
            served.prompts.append(prompt)
            served.answers.append(answer)
            served.cached_tokens.append(cached_tokens)
            added = _text(rng, rng.randint(*workload.added_tokens))
            contexts[session] = prompt + (answer if workload.answers_return else []) + added
        await self._settle()
        served.evicted = Counter(self.evicted)
        return served

    async def _ask(self, prompt: list[int], output_tokens: int) -> tuple[list[int], int]:
        self._asked += 1
        params = SamplingParams(max_tokens=output_tokens, temperature=0, ignore_eos=True)
        outputs = self.engine.generate(
            {"prompt_token_ids": prompt},
            params,
            str(self._asked),
        )
        *_, last = [output async for output in outputs]
        assert last.num_cached_tokens is not None
        return list(last.outputs[0].token_ids), last.num_cached_tokens

    async def _settle(self) -> None:
        """Wait until the engine has nothing more to say."""
        heard = -1
        while heard != self._batches:
            heard = self._batches
            await asyncio.sleep(QUIET_S)


def _text(rng: Random, size: int) -> list[int]:
    return [rng.randrange(10, 40_000) for _ in range(size)]


async def _serve_all(model: Path) -> dict[str, Served]:
    args = engine_args.parse({"model": str(model)} | SMALL_ENGINE)
    place_kv(args, AppConfig(model=str(model), kv_offload_gib=HOST_BLOCKS * BLOCK_GIB))
    with private_endpoints() as endpoints:
        args.kv_events_config = endpoints.config()
        real = RealEngine(AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(args)))
        following = asyncio.create_task(real.follow(endpoints))
        rng = Random(0)
        served = {name: await real.serve(one, rng) for name, one in WORKLOADS.items()}
        assert not following.done()
        following.cancel()
        real.engine.shutdown()
    return served


@pytest.fixture(scope="module")
def served(tiny: Path) -> dict[str, Served]:
    """What vLLM did with all workloads."""
    with pytest.MonkeyPatch.context() as patch:
        prepare_engine(patch)
        return asyncio.run(_serve_all(tiny))


def _simulate(served: Served) -> tuple[list[int], Counter[Tier]]:
    """Return what the simulated engine finds cached of each prompt, and what it evicts."""
    pool = BlockPool(PRIMARY_BLOCKS - 1)  # vLLM keeps one for itself
    memory = KvMemory(pool, HostCache(HOST_BLOCKS))
    engine = Engine(ReplicaId("r1"), PRESETS["smollm2-cpu"], memory)
    now_s = 0.0
    cached_tokens = []
    for prompt, answer in zip(served.prompts, served.answers, strict=True):
        [admitted] = engine.submit(_turn(prompt, answer, now_s), now_s)
        assert isinstance(admitted, Admitted)
        cached_tokens.append(admitted.hit.blocks * BLOCK_TOKENS)
        while engine.next_at_s < inf:
            now_s = engine.next_at_s
            engine.advance(now_s)
    evicted: Counter[Tier] = Counter()
    for event in memory.events.take():
        if isinstance(event, Removed):
            evicted[event.tier] += len(event.engine_hashes)
    return cached_tokens, evicted


def _turn(prompt: list[int], answer: list[int], now_s: float) -> Turn:
    root = root_hash("tiny", BLOCK_TOKENS)
    # The KV of an answer's last token is never computed.
    tokens = np.array([*prompt, *answer[:-1]])
    hashes = hash_blocks(root, tokens, BLOCK_TOKENS)
    full = len(prompt) // BLOCK_TOKENS
    request = Request(
        RequestId("q"), SessionId("s"), hashes[:full], len(prompt), BLOCK_TOKENS, now_s
    )
    contents = np.array(block_contents(tokens, BLOCK_TOKENS), np.uint64)
    return Turn(request, root, contents, len(answer), hashes[full:])


@pytest.mark.parametrize("name", WORKLOADS)
def test_cached_tokens_and_evictions_are_the_real_ones(
    name: str, served: dict[str, Served]
) -> None:
    """Of each prompt as much is found, and of each tier as much evicted, to one percent."""
    real = served[name]
    cached_tokens, evicted = _simulate(real)
    differing = sum(abs(a - b) for a, b in zip(cached_tokens, real.cached_tokens, strict=True))
    assert differing <= TOLERANCE_RATIO * sum(real.cached_tokens)
    for tier in (Tier.GPU, Tier.CPU):
        assert evicted[tier] == pytest.approx(real.evicted[tier], rel=TOLERANCE_RATIO)


def test_the_workloads_reuse_and_evict(served: dict[str, Served]) -> None:
    """Else equal figures would show little: much is reused, and both tiers change twice."""
    evicted: Counter[Tier] = Counter()
    for one in served.values():
        assert sum(one.cached_tokens) > 0.2 * sum(map(len, one.prompts))
        evicted += one.evicted
    assert evicted[Tier.GPU] > 2 * PRIMARY_BLOCKS
    assert evicted[Tier.CPU] > 2 * HOST_BLOCKS
