"""Sends the sessions to a service, each turn after the last one's answer and a pause."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from benchmarks.exchange import Exchange
from benchmarks.live_sessions import Script
from policies.types import ReplicaId, SessionId
from serve_app.http_message import EXPECTED_HEADER, REPLICA_HEADER

WARM_UPS = 16
TIMEOUT_S = 300.0


class ReplayError(Exception):
    """Why a request counts as an error, in the service's words where it has some."""


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one: what was answered, and why other requests were not."""

    exchanges: list[Exchange] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Client:
    """Speaks to a service's /v1/completions in token ids."""

    http: httpx.AsyncClient
    model: str
    context_tokens: int
    """Longest prompt and answer together that the model takes."""
    send_session_ids: bool = True

    @classmethod
    async def connect(cls, http: httpx.AsyncClient, *, send_session_ids: bool = True) -> "Client":
        """Ask the service for its model, and wake all of its replicas.

        Short requests of many sessions do that. Being no full block, they leave nothing in a cache.
        """
        card = (await http.get("/v1/models")).raise_for_status().json()["data"][0]
        client = cls(http, card["id"], card["max_model_len"], send_session_ids)
        started_s = time.perf_counter()
        wake = [client.ask(SessionId(f"wake-{n}"), [1000], 2, started_s) for n in range(WARM_UPS)]
        await asyncio.gather(*wake)
        return client

    async def ask(
        self, session: SessionId, prompt: list[int], answer_tokens: int, started_s: float
    ) -> Exchange:
        """Stream one answer of exactly `answer_tokens`.

        Raises:
            ReplayError, httpx.HTTPError, MsgspecError: there is no whole answer.
        """
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": answer_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "return_token_ids": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"X-Session-ID": session} if self.send_session_ids else {}
        answer: list[int] = []
        first_token_s: float | None = None
        usage: _Usage | None = None
        sent_s = time.perf_counter() - started_s
        url = "/v1/completions"
        async with self.http.stream("POST", url, json=body, headers=headers) as response:
            if not response.is_success:
                text = (await response.aread()).decode(errors="replace")
                raise ReplayError(f"{response.status_code} {text[:200]}")
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = _decode(line.removeprefix("data: "))
                if chunk.error:
                    raise ReplayError(str(chunk.error))
                for choice in chunk.choices:
                    if choice.token_ids and first_token_s is None:
                        first_token_s = time.perf_counter() - started_s
                    answer += choice.token_ids or ()
                usage = chunk.usage or usage
        if first_token_s is None or len(answer) != answer_tokens:
            raise ReplayError(f"{answer_tokens} token ids were to come, {len(answer)} came")
        details = usage.prompt_tokens_details if usage else None
        if details is None or details.cached_tokens is None:
            raise ReplayError("usage has no cached_tokens: see enable_prompt_tokens_details")
        expected = response.headers.get(EXPECTED_HEADER.decode())
        return Exchange(
            session=session,
            replica=ReplicaId(response.headers.get(REPLICA_HEADER.decode(), "unnamed")),
            prompt=prompt,
            answer=answer,
            cached_tokens=details.cached_tokens,
            expected_cached_tokens=None if expected is None else int(expected),
            sent_s=sent_s,
            first_token_s=first_token_s,
            ended_s=time.perf_counter() - started_s,
        )

    async def replay(self, scripts: Sequence[Script], on_end: Callable[[], None]) -> Replay:
        """Play all scripts at once; `on_end` is called at the end of each request.

        A turn that fails is counted, and the session goes on without its answer.
        """
        done = Replay()
        started_s = time.perf_counter()

        async def play(script: Script) -> None:
            context: list[int] = []
            for turn in script.turns:
                await asyncio.sleep(turn.think_s)
                context = context + turn.tokens if turn.extends else turn.tokens
                try:
                    exchange = await self.ask(
                        script.session, context, turn.answer_tokens, started_s
                    )
                except (ReplayError, httpx.HTTPError, msgspec.MsgspecError) as error:
                    done.errors.append(f"{type(error).__name__}: {error}")
                else:
                    done.exchanges.append(exchange)
                    context = context + exchange.answer
                on_end()

        await asyncio.gather(*map(play, scripts))
        return done
