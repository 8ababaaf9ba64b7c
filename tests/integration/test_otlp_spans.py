"""The spans of a turn from its client to the engine, as a collector gets them."""

import asyncio
import json
import uuid
from typing import Any

import httpx
import pytest

from serve_app.http_message import REPLICA_HEADER
from tests.integration.conftest import Service
from tests.otlp_receiver import OtlpReceiver, Span

NAMES = {"read_prompt", "attempt", "route", "llm_request"}
SECRET = "Open sesame"
PROMPTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": SECRET}]},
    "/v1/messages": {"messages": [{"role": "user", "content": SECRET}]},
    "/v1/responses": {"input": SECRET},
    "/v1/completions": {"prompt": SECRET},
}


async def _whole(receiver: OtlpReceiver, trace: str, names: set[str]) -> dict[str, Span]:
    async with asyncio.timeout(15):
        while set(spans := receiver.trace(trace)) != names:
            await asyncio.sleep(0.1)
    return spans


@pytest.mark.parametrize("path", PROMPTS)
async def test_one_trace_from_client_to_engine(
    path: str, service: Service, receiver: OtlpReceiver
) -> None:
    """Gateway and engine hang their spans below the client's, in order, and tell no prompt."""
    trace, parent = uuid.uuid4().hex, uuid.uuid4().hex[:16]
    body = PROMPTS[path] | {"model": service.model, "stream": True}
    body["max_output_tokens" if path == "/v1/responses" else "max_tokens"] = 8
    async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        answer = await http.post(
            path,
            json=body,
            headers={"traceparent": f"00-{trace}-{parent}-01", "X-Session-ID": trace},
        )
    assert answer.status_code == 200
    server = f"POST {path}"
    spans = await _whole(receiver, trace, NAMES | {server})
    parents = {name: one.parent for name, one in spans.items()}
    turn, attempt = spans[server].span, spans["attempt"].span
    assert parents == {
        server: parent,
        "read_prompt": turn,
        "attempt": turn,
        "route": attempt,
        "llm_request": attempt,
    }
    engine = spans.pop("llm_request")
    assert engine.service == "warmturn-engine"
    assert {one.service for one in spans.values()} == {"warmturn-gateway"}
    read, route, first = (spans[name] for name in ("read_prompt", "route", "attempt"))
    assert read.end_ns <= first.start_ns <= route.start_ns <= engine.start_ns
    assert max(first.end_ns, engine.start_ns) <= spans[server].end_ns
    replica = answer.headers[REPLICA_HEADER.decode()]
    assert spans[server].attributes["warmturn.replica"] == replica
    assert spans[server].attributes["gen_ai.request.model"] == service.model
    assert spans["route"].attributes["warmturn.replica"] == replica
    assert spans["route"].attributes["warmturn.rule"] == "new"
    assert spans["route"].attributes["warmturn.reason"]
    assert SECRET not in json.dumps([one.attributes for one in (engine, *spans.values())])
