"""What is learned of a prompt, with a real tokenizer and a chat template that has all there is."""

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.block_hash import hash_blocks, root_hash
from policies.prefix_break import Kind
from policies.types import SessionId
from serve_app import engine_args
from serve_app.http_message import HttpRequest
from serve_app.last_prompts import GENERATION_PROMPT_TOKENS, LastPrompts, RememberedPrompt
from serve_app.prompts import Prompts, ReadPrompt
from serve_app.render import NotRenderable, Prompt, PromptRenderer
from tests import chat_templates
from tests.conversations import Body, Conversation

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
FORMS = {
    CHAT: Conversation.chat,
    RESPONSES: Conversation.responses,
    MESSAGES: Conversation.messages,
}
BLOCK_SIZE = 4
numbers = count()


def _request(path: str, body: Body) -> HttpRequest:
    content = json.dumps({"model": "m"} | body).encode()
    headers = ((b"content-length", b"%d" % len(content)),)
    return HttpRequest("POST", path, b"", headers, content)


def _session() -> SessionId:
    return SessionId(f"session-{next(numbers)}")


class Reader:
    """Prompts of a real renderer, read at once."""

    def __init__(self, renderer: PromptRenderer) -> None:
        self.renderer = renderer
        self.prompts = Prompts(renderer, "model", ["m", "n"])

    def read(
        self,
        path: str,
        body: Body,
        session: SessionId | None = None,
        block_size: int | None = BLOCK_SIZE,
    ) -> ReadPrompt:
        """Read one request."""
        return asyncio.run(self.prompts.read(_request(path, body), session, block_size))

    def ids(self, path: str, body: Body) -> list[int]:
        """Return a prompt's token ids."""
        prompt = self.renderer.render(path, _request(path, body).body, None)
        assert isinstance(prompt, Prompt)
        return list(map(int, prompt.ids))

    def hashes(self, path: str, body: Body, **salt: str) -> list[int]:
        """Return a prompt's hashes, from scratch."""
        ids = np.array(self.ids(path, body), np.uint32)
        return [*hash_blocks(root_hash("model", BLOCK_SIZE, **salt), ids, BLOCK_SIZE)]


@pytest.fixture(scope="module")
def reader(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A tokenizer with a template that has tools, and reasoning of the turn that goes on."""
    template = tmp_path_factory.mktemp("prompts") / "template.jinja"
    template.write_text(chat_templates.CHATML)
    engine = {"model": str(smollm2), "served_model_name": "m", "chat_template": str(template)}
    settings = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
    reader = Reader(PromptRenderer(engine_args.parse(engine | settings)))
    yield reader
    reader.prompts.close()
    reader.renderer.close()


RULES = "\n".join(f"rule {n}: be {n} times as careful" for n in range(12))
TASK = ("user", "please fix the test in the file that I have open, " * 4)
CALLS = [("call", "tests/test_one.py"), ("result", "assert False\n" * 20)]


def _talk() -> Conversation:
    said = [TASK, *CALLS, ("assistant", "I have fixed it."), ("user", "go on")]
    return Conversation(f"{RULES}\nnonce: 1\n{RULES}", said, ["read", "write"])


@pytest.mark.parametrize("path", FORMS)
def test_a_turn_that_extends_the_last_one(reader: Reader, path: str) -> None:
    """Its hashes begin with the last one's, and nothing broke, calls of tools or not."""
    session, talk = _session(), _talk()
    said, talk.said = talk.said + CALLS + [("assistant", "done"), ("user", "thanks")], []
    hashes: list[int] = []
    for turn in (said[:1], said[1:3], said[3:5], said[5:7], said[7:]):
        talk.said += turn
        read = reader.read(path, FORMS[path](talk), session)
        assert read.not_rendered is None
        assert read.prefix_break is None
        assert read.prompt_tokens == len(reader.ids(path, FORMS[path](talk)))
        assert read.hashes.tolist() == reader.hashes(path, FORMS[path](talk))
        assert set(hashes) <= set(read.hashes.tolist())
        all_but_generation_prompt = len(read.hashes) - GENERATION_PROMPT_TOKENS // BLOCK_SIZE
        hashes = read.hashes.tolist()[:all_but_generation_prompt]


def _other_nonce(talk: Conversation) -> None:
    talk.system = f"{RULES}\nnonce: 2\n{RULES}"


def _other_agent(talk: Conversation) -> None:
    talk.system = "You look for files."
    talk.said = [("user", "where is the test?")]


def _reorder(talk: Conversation) -> None:
    talk.tools.reverse()


def _more_tools(talk: Conversation) -> None:
    talk.tools.append("search")


def _rewrite(talk: Conversation) -> None:
    talk.said[2] = ("result", "(cleared)")


def _sum_up(talk: Conversation) -> None:
    talk.said = [("user", "so far: the test is fixed"), ("assistant", "yes"), ("user", "go on")]


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    ("change", "kind", "index", "role"),
    [
        (_other_nonce, Kind.VOLATILE_LINE, 0, "system"),
        (_reorder, Kind.TOOLS_REORDERED, None, None),
        (_more_tools, Kind.TOOLS_CHANGED, None, None),
        (_rewrite, Kind.HISTORY_REWRITTEN, 3, "tool"),
        (_sum_up, Kind.COMPACTION, 1, "user"),
        (_other_agent, Kind.OTHER_LINEAGE, 1, "user"),
    ],
)
def test_why_a_prefix_broke(
    reader: Reader,
    path: str,
    change: Callable[[Conversation], None],
    kind: Kind,
    index: int | None,
    role: str | None,
) -> None:
    """The kind, the message, and where the tokens part, in each API's form."""
    session, talk = _session(), _talk()
    last = reader.ids(path, FORMS[path](talk))
    reader.read(path, FORMS[path](talk), session)
    change(talk)
    this = reader.ids(path, FORMS[path](talk))
    found = reader.read(path, FORMS[path](talk), session).prefix_break
    assert found is not None
    assert (found.kind, found.message_index, found.role) == (kind, index, role)
    same = next(n for n, (a, b) in enumerate(zip(last, this, strict=False)) if a != b)
    assert (found.token, found.lost_tokens) == (same, len(last) - same)


def test_reasoning_that_the_template_drops(reader: Reader) -> None:
    """What an agent thought between its calls is gone once the user speaks again."""
    session, body = _session(), _talk().chat()
    call, result = deepcopy(body["messages"][2:4])
    call["reasoning"] = "The test says what it wants. " * 5
    body["messages"] += [call, result]
    assert reader.read(CHAT, body, session).prefix_break is None
    body["messages"] += [
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "?"},
    ]
    found = reader.read(CHAT, body, session).prefix_break
    assert found is not None
    assert (found.kind, found.message_index) == (Kind.REASONING_STRIPPED, 6)


def test_each_lineage_goes_on(reader: Reader) -> None:
    """The main thread and a subagent take turns: only the subagent's first prompt is a break."""
    session, main, sub = _session(), _talk(), _talk()
    _other_agent(sub)
    kinds = []
    for talk in (main, sub, main, sub):
        found = reader.read(MESSAGES, talk.messages(), session).prefix_break
        kinds.append(found and found.kind)
        talk.said += [("assistant", "it is here"), ("user", "thank you, go on")]
    assert kinds == [None, Kind.OTHER_LINEAGE, None, None]


def test_nothing_broke_that_was_not_one(reader: Reader) -> None:
    """Without a session there is nothing to break, nor do completions have messages."""
    assert reader.read(CHAT, _talk().chat()).prefix_break is None
    assert reader.read(CHAT, {"messages": [{"role": "user", "content": "a"}]}).prefix_break is None
    session = _session()
    for prompt in ("one " * 30, "two " * 30):
        assert reader.read(COMPLETIONS, {"prompt": prompt}, session).prefix_break is None


def test_adapters_and_tenants_share_nothing(reader: Reader) -> None:
    """Hashes are of the body's adapter and cache salt; names of the model itself are one."""
    session, body = _session(), _talk().chat()
    for more, salt in (
        ({}, {}),
        ({"model": "n"}, {}),
        ({"model": None}, {}),
        ({"model": "adapter"}, {"lora": "adapter"}),
        ({"cache_salt": "tenant"}, {"tenant": "tenant"}),
    ):
        hashes = reader.read(CHAT, body | more, session).hashes
        assert hashes.tolist() == reader.hashes(CHAT, body, **salt)


def test_without_a_block_size(reader: Reader) -> None:
    """There are no hashes, but all the rest; and hashes once it is known."""
    session, body = _session(), _talk().chat()
    read = reader.read(CHAT, body, session, block_size=None)
    assert len(read.hashes) == 0
    assert read.prompt_tokens == len(reader.ids(CHAT, body))
    assert reader.read(CHAT, body, session).hashes.tolist() == reader.hashes(CHAT, body)


@pytest.mark.parametrize("path", FORMS)
def test_the_engine_is_handed_the_ids(reader: Reader, path: str) -> None:
    """They are one more field of the body, whose length is in the header."""
    body = FORMS[path](_talk())
    ids = reader.ids(path, body)
    request = reader.read(path, body).request
    carried = {"kv_transfer_params": {"prompt_token_ids": ids}}
    assert json.loads(request.body) == {"model": "m"} | body | carried
    assert request.headers == ((b"content-length", b"%d" % len(request.body)),)
    assert reader.ids(path, json.loads(request.body)) == ids


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (CHAT, {"kv_transfer_params": None}),
        (CHAT, {"kv_transfer_params": {"do_remote_decode": True}}),
        (MESSAGES, {"kv_transfer_params": {}}),
        (CHAT, {"echo": True}),
        (CHAT, {"return_prompt_text": True}),
        (RESPONSES, {"enable_response_messages": True}),
        (COMPLETIONS, {"prompt": "hello"}),
    ],
)
def test_what_is_sent_on_as_it_came(reader: Reader, path: str, more: Body) -> None:
    """A request with such parameters of its own, or that wants to see its prompt."""
    request = _request(path, (FORMS[path](_talk()) if path in FORMS else {}) | more)
    read = asyncio.run(reader.prompts.read(request, None, BLOCK_SIZE))
    assert read.not_rendered is None
    assert read.request is request


def test_json_that_is_not_utf8(reader: Reader) -> None:
    """Nothing is added to a body in another encoding, which vLLM reads as well."""
    request = _request(CHAT, _talk().chat())
    request = request.with_body(request.body.decode().encode("utf-16-be"))
    read = asyncio.run(reader.prompts.read(request, None, BLOCK_SIZE))
    assert read.request is request
    assert read.hashes.tolist() == reader.hashes(CHAT, _talk().chat())


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messages": "secret"}', b"x" * 4000])
def test_what_cannot_be_rendered(reader: Reader, body: bytes) -> None:
    """It is sent on as it is, with a guess of its length, and a reason that gives nothing away."""
    request = HttpRequest("POST", CHAT, b"", (), body)
    read = asyncio.run(reader.prompts.read(request, _session(), BLOCK_SIZE))
    assert read.request is request
    assert len(read.hashes) == 0
    assert read.prompt_tokens == len(body) // 4
    assert read.prefix_break is None
    assert read.not_rendered
    assert "secret" not in read.not_rendered


class Given:
    """A renderer of requests whose bodies are token ids already, with a model and a salt."""

    def __init__(self) -> None:
        self._last = LastPrompts(2, 2)

    def render(self, _path: str, body: bytes, session: SessionId | None) -> Prompt | NotRenderable:
        """Render a request."""
        fields = json.loads(body)
        ids = np.array(fields["ids"], np.uint32)
        remembered = RememberedPrompt([ids])
        overlap = self._last.add(session, remembered)
        return Prompt(ids, remembered, overlap, fields["model"], fields["salt"], False)


tokens = st.lists(st.integers(0, 3), max_size=24)
turns = st.tuples(
    st.integers(0, 40),  # tokens that stay
    tokens,
    st.sampled_from([None, "m", "adapter"]),
    st.sampled_from([None, "tenant"]),
    st.sampled_from([None, 3, 4]),
    st.sampled_from(["one", "two", None]),
)


@settings(deadline=None)
@given(st.lists(turns, max_size=12))
def test_hashes_are_those_from_scratch(session: list[tuple[Any, ...]]) -> None:
    """Whatever is appended, edited, or changed of model, tenant, block size and session."""
    prompts = Prompts(Given(), "model", ["m"])
    ids: list[int] = []
    with asyncio.Runner() as runner:
        for kept, new, model, salt, block_size, speaker in session:
            ids = ids[:kept] + new
            body: Body = {"ids": ids, "model": model, "salt": salt}
            read = runner.run(prompts.read(_request(CHAT, body), speaker, block_size))
            assert read.prompt_tokens == len(ids)
            expected: list[Any] = []
            if block_size is not None:
                lora = "adapter" if model == "adapter" else ""
                root = root_hash("model", block_size, lora=lora, tenant=salt or "")
                expected = [*hash_blocks(root, np.array(ids, np.uint32), block_size)]
            assert read.hashes.tolist() == expected
    prompts.close()


def test_threads_do_not_disturb_each_other(reader: Reader) -> None:
    """Turns of one session that are read at the same time get their own hashes."""
    session, bodies = _session(), []
    for number in range(40):
        talk = _talk()
        talk.said = [*talk.said[: 1 + number % 5], ("user", f"word {number}")]
        bodies.append(talk.chat())
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda body: reader.read(CHAT, body, session), bodies))
    assert [one.hashes.tolist() for one in read] == [reader.hashes(CHAT, one) for one in bodies]
