"""A service of replicas that compute nothing and remember blocks as engines do."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

MODEL = "fake"


class FakeReplica:
    """A cache of the last blocks used."""

    def __init__(self, name: str, blocks: int, block_size: int) -> None:
        self.name = name
        self._capacity = blocks
        self._block_size = block_size
        self._blocks: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def cached_tokens(self, prompt: list[int]) -> int:
        """Return the tokens of the prompt's leading blocks that are held, not the last token's."""
        held = 0
        for block in self._prefixes(prompt[:-1]):
            if block not in self._blocks:
                break
            held = len(block)
        return held

    def compute(self, tokens: list[int]) -> None:
        """Hold the blocks of these tokens; those used longest ago make room, tails first."""
        for block in reversed(self._prefixes(tokens)):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)

    def _prefixes(self, tokens: list[int]) -> list[tuple[int, ...]]:
        ends = range(self._block_size, len(tokens) + 1, self._block_size)
        return [tuple(tokens[:end]) for end in ends]


class FakeService:
    """Answers /v1/completions in token ids, streamed; a session's turns go to one replica.

    Requests without a session id go to each replica in turn. `refuse` makes it answer 429,
    `break_off` makes an answer end early, each for the requests of that number.
    """

    def __init__(
        self,
        *,
        replicas: int,
        blocks: int = 10**6,
        block_size: int = 32,
        context_tokens: int = 4096,
    ) -> None:
        self.replicas = [FakeReplica(f"r{n}", blocks, block_size) for n in range(replicas)]
        self.context_tokens = context_tokens
        self.requests: list[tuple[str | None, dict[str, Any]]] = []
        self.predicts_too_much_by: int | None = None
        self.reports_cached = True
        self.refuse: set[int] = set()
        self.break_off: set[int] = set()
        self._homes: dict[str, FakeReplica] = {}
        self._turn = count()
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/completions", self._complete, methods=["POST"]),
            ]
        )

    @property
    def replayed(self) -> list[tuple[str | None, dict[str, Any]]]:
        """Session ids and bodies of all requests but the short ones that wake the service."""
        return [one for one in self.requests if len(one[1]["prompt"]) > 1]

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": MODEL, "max_model_len": self.context_tokens}]})

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        session = request.headers.get("x-session-id")
        self.requests.append((session, body))
        number = len(self.replayed)
        if number in self.refuse:
            return JSONResponse({"error": {"message": "too busy"}}, status_code=429)
        replica = self._place(session)
        cached = replica.cached_tokens(body["prompt"])
        replica.compute(body["prompt"])
        headers = {"x-warmturn-replica": replica.name}
        if self.predicts_too_much_by is not None:
            expected = cached + self.predicts_too_much_by
            headers["x-warmturn-expected-cached-tokens"] = str(expected)
        pieces = self._pieces(body, replica, cached, breaks_off=number in self.break_off)
        return StreamingResponse(pieces, headers=headers, media_type="text/event-stream")

    def _place(self, session: str | None) -> FakeReplica:
        if session is not None and session in self._homes:
            return self._homes[session]
        chosen = self.replicas[next(self._turn) % len(self.replicas)]
        if session is not None:
            self._homes[session] = chosen
        return chosen

    async def _pieces(
        self, body: dict[str, Any], replica: FakeReplica, cached: int, *, breaks_off: bool
    ) -> AsyncIterator[str]:
        prompt = body["prompt"]
        answer = [2000 + (sum(prompt) + n) % 1000 for n in range(body["max_tokens"])]
        for number, token in enumerate(answer):
            await asyncio.sleep(0)
            choice = {"index": 0, "text": "", "token_ids": [token]}
            if number == 0:
                choice["prompt_token_ids"] = prompt
            yield _event({"choices": [choice]})
            if breaks_off:
                yield _event({"error": {"message": "the replica is gone"}})
                return
        replica.compute([*prompt, *answer][:-1])
        usage: dict[str, Any] = {"prompt_tokens": len(prompt)}
        if self.reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        yield _event({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


def _event(fields: dict[str, Any]) -> str:
    return f"data: {json.dumps(fields)}\n\n"
