"""What an index makes of an engine's events is what the engine then reuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from policies.block_hash import hash_blocks, root_hash
from policies.kv_events import EventBatch, Snapshot
from policies.match import NO_MATCH, Match
from policies.prefix_index import PrefixIndex
from policies.types import ReplicaId
from serve_app import engine_args
from serve_app.config import AppConfig
from serve_app.kv_event_stream import Endpoints, Lost, follow, private_endpoints
from serve_app.kv_mirror import KvMirror
from serve_app.kv_tiers import place_kv
from tests.integration.conftest import BLOCK_TOKENS, SMALL_ENGINE, empty_caches, prepare_engine

MODEL, REPLICA = "tiny", ReplicaId("r1")
QUIET_S = 0.6
OFFLOAD_GIB = 0.25


@dataclass
class Followed:
    """An engine, and the index that follows its events."""

    engine: AsyncLLM
    mirror: KvMirror = field(default_factory=lambda: KvMirror(MODEL))
    index: PrefixIndex = field(default_factory=lambda: PrefixIndex(10.0, 10.0, 100, 100))
    batches: int = 0
    asked: int = 0

    async def follow(self, endpoints: Endpoints) -> None:
        """Keep the index in step."""
        async with aclosing(follow(endpoints)) as stream:
            async for batch in stream:
                assert not isinstance(batch, Lost)
                told = self.mirror.apply(batch)
                assert self.index.apply(EventBatch(REPLICA, 1, self.batches, told), 0.0)
                self.batches += 1

    async def settle(self) -> None:
        """Wait until the engine has nothing more to say."""
        heard = -1
        while heard != self.batches:
            heard = self.batches
            await asyncio.sleep(QUIET_S)

    def match(self, tokens: list[int], salt: str) -> Match:
        """Return what should be reused, by the index and by a snapshot alike."""
        root = root_hash(MODEL, BLOCK_TOKENS, tenant=salt)
        hashes = hash_blocks(root, np.array(tokens), BLOCK_TOKENS)
        other = PrefixIndex(10.0, 10.0, 100, 100)
        other.restore(Snapshot(REPLICA, 1, 0, self.mirror.snapshot()), 0.0)
        found = self.index.match(hashes).get(REPLICA, NO_MATCH)
        assert other.match(hashes).get(REPLICA, NO_MATCH) == found
        return found

    async def ask(self, tokens: list[int], salt: str = "") -> tuple[Match, list[int]]:
        """Return what was foreseen, which is what was reused, and the answer."""
        await self.settle()
        foreseen = self.match(tokens, salt)
        self.asked += 1
        prompt = {"prompt_token_ids": tokens} | ({"cache_salt": salt} if salt else {})
        params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
        outputs = self.engine.generate(prompt, params, str(self.asked))  # type: ignore[arg-type]
        *_, last = [output async for output in outputs]
        assert last.num_cached_tokens == foreseen.blocks * BLOCK_TOKENS
        return foreseen, list(last.outputs[0].token_ids)


@pytest.fixture
async def followed(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Followed]:
    """An engine with a small primary cache and a CPU tier."""
    prepare_engine(monkeypatch)
    args = engine_args.parse({"model": str(tiny)} | SMALL_ENGINE)
    place_kv(args, AppConfig(model=str(tiny), kv_offload_gib=OFFLOAD_GIB))
    with private_endpoints() as endpoints:
        args.kv_events_config = endpoints.config()
        config = AsyncEngineArgs.from_cli_args(args)
        followed = Followed(AsyncLLM.from_engine_args(config))
        following = asyncio.create_task(followed.follow(endpoints))
        yield followed
        assert not following.done()
        following.cancel()
        followed.engine.shutdown()


async def test_what_is_foreseen_is_reused(followed: Followed) -> None:
    """For every prompt: new, evicted to CPU memory, continued, and of another tenant."""
    random = np.random.default_rng(0)

    def make_prompt(size: int) -> list[int]:
        return [int(token) for token in random.integers(10, 40_000, size)]

    prompts = [make_prompt(size) for size in (2978, 2978, 1500, 640)]
    for prompt in prompts:
        assert (await followed.ask(prompt))[0] == NO_MATCH
    for prompt in prompts:
        found, answer = await followed.ask(prompt)
        assert found == Match(0, len(prompt) // BLOCK_TOKENS)
    turn = prompt + answer + make_prompt(100)
    found, answer = await followed.ask(turn)
    assert found == Match((len(prompt) + len(answer) - 1) // BLOCK_TOKENS)
    found, _ = await followed.ask(turn + answer)
    assert found == Match((len(turn) + len(answer) - 1) // BLOCK_TOKENS)

    assert (await followed.ask(prompt, "tenant"))[0] == NO_MATCH
    assert (await followed.ask(prompt, "tenant"))[0] == Match(len(prompt) // BLOCK_TOKENS)
    for other in prompts[:2]:
        await followed.ask(other)
    assert (await followed.ask(prompt, "tenant"))[0] == Match(0, len(prompt) // BLOCK_TOKENS)
    assert (await followed.ask(prompt, "other"))[0] == NO_MATCH

    await empty_caches(followed.engine)  # it tells of that with its next step
    params = SamplingParams(max_tokens=1)
    async for _ in followed.engine.generate({"prompt_token_ids": [1, 2, 3]}, params, "step"):
        pass
    for prompt in prompts:
        assert (await followed.ask(prompt))[0] == NO_MATCH
    for prompt in prompts[:2]:
        assert (await followed.ask(prompt))[0].blocks == len(prompt) // BLOCK_TOKENS
