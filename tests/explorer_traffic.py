"""Sessions of several agents for the pictures of the page, some of which break their prefixes.

python -m tests.explorer_traffic --url http://127.0.0.1:8000
"""

import asyncio
from random import Random
from typing import Annotated, Any

import httpx
import typer

AGENTS = ("claude-cli/2.0.14 (external, cli)", "codex_cli_rs/0.46.0", "opencode/0.15", "Cline/3.32")
WORDS = [
    f"{a}{b}" for a in ("read", "edit", "test", "find", "call") for b in ("er", "s", "ing", "")
]
SYSTEM_WORDS, TURN_WORDS = 250, (60, 260)
MOST_CHARS = 13_000
"""The model takes no more; who has said so much sums it up, as agents do."""


def _say(rng: Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


async def _hold(http: httpx.AsyncClient, model: str, number: int, turns: int) -> None:
    """Hold one session: now and then its system prompt changes, or its history is summed up."""
    rng = Random(number)
    agent = rng.choice(AGENTS)
    system = _say(Random(agent), SYSTEM_WORDS)
    messages: list[dict[str, str]] = []
    headers = {"user-agent": agent, "x-session-id": f"{rng.getrandbits(64):016x}"}
    await asyncio.sleep(rng.uniform(0, 10))
    for _ in range(turns):
        if sum(len(one["content"]) for one in messages) > MOST_CHARS:
            messages = [{"role": "user", "content": _say(rng, TURN_WORDS[0])}]
        if rng.random() < 0.05:
            system = f"{system} {_say(rng, 3)}"
        messages.append({"role": "user", "content": _say(rng, rng.randint(*TURN_WORDS))})
        front = {"role": "system", "content": system}
        body: dict[str, Any] = {"model": model, "messages": [front, *messages]}
        body |= {"max_tokens": rng.randint(8, 32), "ignore_eos": True}
        answer = await http.post("/v1/chat/completions", json=body, headers=headers)
        answer.raise_for_status()
        messages.append({"role": "assistant", "content": _say(rng, 5)})
        await asyncio.sleep(rng.expovariate(1) * 1.5)


async def hold(url: str, sessions: int, turns: int) -> None:
    """Hold all sessions at once."""
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        model = (await http.get("/v1/models")).json()["data"][0]["id"]
        held = (_hold(http, model, number, turns) for number in range(sessions))
        await asyncio.gather(*held)


def main(
    url: Annotated[str, typer.Option(help="A running service.")] = "http://127.0.0.1:8000",
    sessions: int = 30,
    turns: int = 14,
) -> None:
    """Hold the sessions."""
    asyncio.run(hold(url, sessions, turns))


if __name__ == "__main__":
    typer.run(main)
