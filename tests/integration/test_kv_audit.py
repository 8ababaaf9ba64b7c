"""An audit on a real engine: wrong KV is found and thrown away, and what runs goes on."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from vllm import SamplingParams
from vllm.inputs.engine import TokensInput, tokens_input
from vllm.v1.engine.async_llm import AsyncLLM

from serve_app.audit_verdict import Verdict
from serve_app.kv_audit import KvAudit
from tests.integration import faulty_engine
from tests.integration.conftest import BLOCK_TOKENS, empty_caches, prepare_engine
from tests.integration.faulty_tier import WRONG

PROMPT_TOKENS = 1_000
WITHIN_S = 60.0


@dataclass
class Audited:
    """An engine, its audit, and what that said."""

    engine: AsyncLLM
    root: Path
    verdicts: asyncio.Queue[Verdict] = field(default_factory=asyncio.Queue)
    asked: int = 0

    async def ask(self, number: int, answer_tokens: int = 16) -> tuple[int, list[int]]:
        """Return how much of a prompt was cached, and the answer."""
        self.asked += 1
        params = SamplingParams(temperature=0, max_tokens=answer_tokens, ignore_eos=True)
        outputs = self.engine.generate(_prompt(number), params, f"{self.asked}")
        *_, last = [output async for output in outputs]
        return last.num_cached_tokens or 0, list(last.outputs[0].token_ids)

    async def audit(self, number: int, cached_tokens: int) -> Verdict:
        """Audit a turn that is over."""
        audit = KvAudit(self.engine, 1e-9, self.verdicts.put_nowait)
        audit.offer(_prompt(number), None, cached_tokens)
        running = asyncio.create_task(audit.run())
        verdict = await asyncio.wait_for(self.verdicts.get(), WITHIN_S)
        # What it does about it is done when there is a verdict on the next one.
        audit.offer(_prompt(number), None, cached_tokens)
        await asyncio.wait_for(self.verdicts.get(), WITHIN_S)
        running.cancel()
        return verdict

    async def until_stored(self, blocks: int) -> None:
        """Wait until the shared tier has so many blocks."""
        async with asyncio.timeout(WITHIN_S):
            while sum(path.parent != self.root for path in self.root.rglob("*.kv")) < blocks:
                await asyncio.sleep(0.05)


def _prompt(number: int) -> TokensInput:
    return tokens_input([10 + (number + 7) * place % 40_000 for place in range(PROMPT_TOKENS)])


@pytest.fixture
async def audited(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Audited]:
    """An engine with three tiers."""
    prepare_engine(monkeypatch)
    root = tmp_path / "kv"
    audited = Audited(faulty_engine.start(tiny, root), root)
    yield audited
    audited.engine.shutdown()


async def test_wrong_kv_is_found_and_thrown_away(audited: Audited) -> None:
    """It came from a file that said what it should not; right KV of all tiers is left alone."""
    whole = (PROMPT_TOKENS - 1) // BLOCK_TOKENS
    cached_tokens, right = await audited.ask(1)
    assert cached_tokens == 0
    assert await audited.audit(1, whole * BLOCK_TOKENS) is Verdict.SAME
    assert await audited.ask(1) == (whole * BLOCK_TOKENS, right)
    await audited.until_stored(PROMPT_TOKENS // BLOCK_TOKENS)

    await empty_caches(audited.engine)
    with faulty_engine.fault(audited.root, WRONG):
        cached_tokens, wrong = await audited.ask(1)
    assert cached_tokens == whole * BLOCK_TOKENS
    assert wrong != right
    others = [asyncio.create_task(audited.ask(number, 400)) for number in (2, 3)]
    await asyncio.sleep(0.5)
    assert await audited.audit(1, cached_tokens) is Verdict.DIFFERS
    assert not any(other.done() for other in others)

    # What that next one needed came from the shared tier once more.
    assert await audited.ask(1) == (whole * BLOCK_TOKENS, right)
    assert await audited.audit(1, cached_tokens) is Verdict.SAME
    answers = [answer for _, answer in await asyncio.gather(*others)]
    assert [(await audited.ask(number, 400))[1] for number in (2, 3)] == answers
