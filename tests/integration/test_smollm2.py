"""The packaged model with speculative decoding, put in place by the Serve command line."""

import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from openai.types.chat import ChatCompletionMessageParam

from serve_app.example import Turn, ask
from serve_app.local_cluster import LocalCluster, states
from tests.integration.conftest import APP, Service, configure

RUNS = 3
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


@pytest.fixture(scope="module")
def smollm2_service(
    cluster: LocalCluster, port: int, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Service:
    """One replica of SmolLM2, deployed as an operator does: a file and `serve deploy`."""
    engine: dict[str, Any] = {"speculative_config": NGRAM}
    file = tmp_path_factory.mktemp("serve") / "serve.yaml"
    content = configure(smollm2, port, engine, replicas=1)
    file.write_text(yaml.safe_dump(content))
    serve = Path(sys.executable).with_name("serve")
    subprocess.run([serve, "deploy", file, "--address", cluster.dashboard_url], check=True)
    for progress in states(cluster, APP):
        print(progress)
    return Service(f"http://127.0.0.1:{port}", smollm2.name, content)


@pytest.fixture
def client(smollm2_service: Service) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{smollm2_service.url}/v1", api_key="none")


def _agent_prompt(number: int) -> list[ChatCompletionMessageParam]:
    lines = [f"file{i}.py defines f{i}(x), which returns x + {i}." for i in range(100)]
    system = f"You are coding agent number {number}. " + "\n".join(lines)
    question = "What is the capital of France?"
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def test_the_second_turn_starts_three_times_sooner(
    client: openai.OpenAI, smollm2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first token comes at least 3x sooner than that of a cold prompt of the same length."""
    cold: list[Turn] = []
    warm: list[Turn] = []
    for number in range(RUNS):
        session = {"X-Session-ID": f"ttft-{number}"}
        messages = _agent_prompt(number)
        first = ask(client, smollm2.name, messages, session)
        messages += [
            {"role": "assistant", "content": first.answer},
            {"role": "user", "content": "And of Italy?"},
        ]
        warm.append(ask(client, smollm2.name, messages, session))
        # The same conversation from another agent: as long, but different from its first line on.
        stranger = [*_agent_prompt(number + 100)[:1], *messages[1:]]
        cold.append(ask(client, smollm2.name, stranger, {"X-Session-ID": f"cold-{number}"}))
        assert "Paris" in first.answer
    assert min(turn.prompt_tokens for turn in cold + warm) > 2000
    assert min(turn.cached_tokens for turn in warm) > 1900
    assert max(turn.cached_tokens for turn in cold) < 100
    ratio = statistics.median(t.ttft_s for t in cold) / statistics.median(t.ttft_s for t in warm)
    with capsys.disabled():
        print(f"\nTTFT cold / second turn: {ratio:.1f}")
    assert ratio >= 3


def test_speculation_has_tokens_accepted(
    client: openai.OpenAI, smollm2_service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where an answer repeats its prompt, n-gram speculation guesses tokens right."""
    before = smollm2_service.engine_metric(ACCEPTED)
    text = "def add(left, right):\n    return left + right\n" * 4
    question = f"Repeat this code exactly:\n```python\n{text}```"
    client.chat.completions.create(
        model=smollm2_service.model,
        messages=[{"role": "user", "content": question}],
        max_tokens=60,
        temperature=0,
    )
    accepted = smollm2_service.engine_metric(ACCEPTED) - before
    with capsys.disabled():
        print(f"\naccepted tokens: {accepted:.0f} of an answer of 60")
    assert accepted >= 10
