"""What bad input gets: a clear error in the API's form, and a service that goes on."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.integration.conftest import MAX_MODEL_LEN, Service

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
PATHS = (CHAT, "/v1/completions", "/v1/responses", MESSAGES, "/v1/messages/count_tokens")
HELLO: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 2,
}


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client; afterwards the service must still be ready and answer."""
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
        yield client
        assert (await client.get("/ready")).status_code == 200
        assert (await client.post(CHAT, json=HELLO)).status_code == 200


def _message(response: httpx.Response) -> str:
    """Return the error's message, having checked that it has its API's form."""
    content = response.json()
    if response.url.path.startswith(MESSAGES):
        assert content["type"] == "error"
    else:
        assert content["error"]["code"] == response.status_code
    assert content["error"]["type"]
    assert "Traceback" not in response.text
    message: str = content["error"]["message"]
    assert message
    return message


@pytest.mark.parametrize("path", PATHS)
async def test_malformed_json(http: httpx.AsyncClient, path: str) -> None:
    """A body that is not JSON is a 400 that says so."""
    response = await http.post(
        path, content=b'{"model": ', headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    assert "JSON" in _message(response)


@pytest.mark.parametrize("path", PATHS)
async def test_unknown_model(http: httpx.AsyncClient, path: str) -> None:
    """An unknown model is a 404 that names it."""
    body = HELLO | {"model": "gpt-99"} | ({} if "messages" in path else {"input": "hi"})
    body |= {"prompt": "hi"} if path == "/v1/completions" else {}
    response = await http.post(path, json=body)
    assert response.status_code == 404
    assert "gpt-99" in _message(response)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_empty_messages(http: httpx.AsyncClient, path: str) -> None:
    """A conversation without messages is a 400."""
    response = await http.post(path, json=HELLO | {"messages": []})
    assert response.status_code == 400
    _message(response)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_wrong_types(http: httpx.AsyncClient, path: str) -> None:
    """A field of the wrong type is a 400 that names it."""
    response = await http.post(path, json=HELLO | {"messages": "hi", "max_tokens": "many"})
    assert response.status_code == 400
    assert "messages" in _message(response)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_prompt_too_long(http: httpx.AsyncClient, path: str) -> None:
    """A prompt longer than the model's context is a 400 that gives the limit."""
    messages = [{"role": "user", "content": "hello world " * MAX_MODEL_LEN}]
    response = await http.post(path, json=HELLO | {"messages": messages})
    assert response.status_code == 400
    assert str(MAX_MODEL_LEN) in _message(response)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_20_mib_body(http: httpx.AsyncClient, path: str, chunked: bool) -> None:
    """A body over the limit is a 413, sent whole or in chunks."""
    messages = [{"role": "user", "content": "x" * 20 * 2**20}]
    whole = json.dumps(HELLO | {"messages": messages}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(whole), 2**16):
            yield whole[start : start + 2**16]

    response = await http.post(path, content=chunks() if chunked else whole)
    assert response.status_code == 413
    assert "16 MiB" in _message(response)


async def test_bodies_up_to_the_limit_reach_the_engine(http: httpx.AsyncClient) -> None:
    """A body just below the limit gets the engine's answer, and a large answer comes back whole."""
    text = "hello world " * 300_000
    long = HELLO | {"messages": [{"role": "user", "content": text * 4}]}
    assert 14 * 2**20 > len(json.dumps(long)) > 13 * 2**20
    response = await http.post(CHAT, json=long)
    assert response.status_code == 400
    assert str(MAX_MODEL_LEN) in _message(response)
    response = await http.post("/tokenize", json={"model": "tiny", "prompt": text[:2_000_000]})
    assert response.status_code == 200
    assert len(response.json()["tokens"]) == response.json()["count"] > 300_000


async def test_json_nested_beyond_measure(http: httpx.AsyncClient) -> None:
    """JSON that no parser can follow is the client's error, not a fault of the service."""
    nested = b'{"model": "tiny", "messages": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    response = await http.post(CHAT, content=nested, headers={"content-type": "application/json"})
    assert response.status_code in (400, 500)
    _message(response)


async def test_unknown_paths_and_methods(http: httpx.AsyncClient) -> None:
    """What is not served is a 404 or 405, never vLLM's inner endpoints."""
    for path in ("/v1/nope", "/metrics", "/v1/messages/batches", "/docs", "/server_info"):
        response = await http.get(path)
        assert response.status_code == 404
        assert path in _message(response)
    for path in (CHAT, MESSAGES):
        response = await http.get(path)
        assert response.status_code == 405
        assert _message(response) == "Method Not Allowed"


async def test_an_odd_session_id(http: httpx.AsyncClient) -> None:
    """A long session id that is not ASCII is an id like any other."""
    odd = "é/../\u4f60" * 300
    response = await http.post(CHAT, json=HELLO, headers={b"x-session-id": odd.encode()})
    assert response.status_code == 200
    assert (await http.post(CHAT, json=HELLO | {"session_id": odd})).status_code == 200
