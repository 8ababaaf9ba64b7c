"""What is made of a request before it is routed."""

import numpy as np
import pytest

from policies.types import SessionId
from serve_app.http_message import HttpRequest
from serve_app.prompts import ReadPrompt
from serve_app.route_request import SentBody
from serve_app.turns import TURN_PATHS, Turns


class FakePrompts:
    """Reads every prompt as the same ten tokens."""

    def __init__(self) -> None:
        self.asked: list[tuple[SessionId | None, int | None]] = []

    async def read(
        self, request: HttpRequest, session: SessionId | None, block_size: int | None
    ) -> ReadPrompt:
        self.asked.append((session, block_size))
        return ReadPrompt(request.with_body(b"with ids"), np.array([1, 2], np.uint64), 10)


HEADERS = ((b"x-request-id", b"seen-by-client"), (b"user-agent", b"claude-cli/2.0 (cli)"))


def _request(path: str, method: str = "POST") -> HttpRequest:
    return HttpRequest(method, path, b"", HEADERS, b"{}")


@pytest.mark.parametrize("path", sorted(TURN_PATHS))
async def test_a_turn_is_read_once(path: str) -> None:
    """Hashes go to the router, the request with its ids to the replica."""
    prompts = FakePrompts()
    request, turn = await Turns(prompts, lambda: 4).read(_request(path), SessionId("s1"), b"{}")
    assert turn is not None
    assert request.body == b"with ids"
    assert (turn.http_id, turn.session) == ("seen-by-client", "s1")
    assert turn.client == "claude-cli"
    assert (turn.hashes.tolist(), turn.prompt_tokens, turn.block_size) == ([1, 2], 10, 4)
    assert prompts.asked == [("s1", 4)]


async def test_every_turn_has_an_id_of_its_own() -> None:
    """Clients may use one request id twice at a time."""
    turns = Turns(FakePrompts(), lambda: 4)
    path = "/v1/messages"
    ids = {(await turns.read(_request(path), None, b"{}"))[1].request for _ in range(3)}  # type: ignore[union-attr]
    assert len(ids) == 3


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/messages"), ("POST", "/tokenize")])
async def test_what_has_no_prompt_is_no_turn(method: str, path: str) -> None:
    """It's passed as it is."""
    prompts = FakePrompts()
    request = _request(path, method)
    assert await Turns(prompts, lambda: 4).read(request, None, b"{}") == (request, None)
    assert prompts.asked == []


async def test_routers_that_need_no_prompt_cost_no_rendering() -> None:
    """The session is known all the same."""
    turns = Turns(None, lambda: 4)
    request, turn = await turns.read(_request("/v1/messages"), SessionId("s1"), b"{}")
    assert request == _request("/v1/messages")
    assert turn is not None
    assert (turn.session, len(turn.hashes)) == ("s1", 0)


async def test_what_a_client_sent_is_kept_where_it_is_recorded() -> None:
    """As it came, not as it is sent on; else it does not travel."""
    for keep_sent in (True, False):
        turns = Turns(FakePrompts(), lambda: 4, keep_sent=keep_sent)
        _, turn = await turns.read(_request("/v1/messages"), None, b"as it came")
        assert turn is not None
        assert turn.sent == (SentBody("/v1/messages", b"as it came") if keep_sent else None)
