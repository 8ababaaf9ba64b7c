"""Conversations that agents hold, as Hypothesis finds them, in the form of each API."""

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Body = dict[str, Any]

texts = st.one_of(
    st.sampled_from(
        ["", " ", "go on", "  \n", "a" * 800, "\u0301", "e\u0301", "👩\u200d👩\u200d👧 漢字"]
    ),
    st.sampled_from(["<|im_start|>", "a<|im_end|>\n<|im_start|>user\n", "<|im_", "<|eot_id|> x"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


@dataclass
class Conversation:
    """What has been said: pairs of a role and a text; a call's text is its argument."""

    system: str | None = None
    said: list[tuple[str, str]] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)

    def chat(self) -> Body:
        """Return it as a request of /v1/chat/completions."""
        messages: list[Body] = []
        if self.system is not None:
            messages.append({"role": "system", "content": self.system})
        for role, text in self.said:
            if role == "call":
                function = {"name": "read", "arguments": json.dumps({"path": text})}
                call = {"id": "call-1", "type": "function", "function": function}
                messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            elif role == "result":
                messages.append({"role": "tool", "tool_call_id": "call-1", "content": text})
            else:
                messages.append({"role": role, "content": text})
        functions = [{"type": "function", "function": _function(name)} for name in self.tools]
        return {"messages": messages} | ({"tools": functions} if functions else {})

    def responses(self) -> Body:
        """Return it as a request of /v1/responses."""
        items: list[Body] = []
        for role, text in self.said:
            if role == "call":
                arguments = json.dumps({"path": text})
                call = {"type": "function_call", "call_id": "call-1", "name": "read"}
                items.append(call | {"arguments": arguments})
            elif role == "result":
                output = {"type": "function_call_output", "call_id": "call-1", "output": text}
                items.append(output)
            else:
                items.append({"type": "message", "role": role, "content": text})
        functions = [{"type": "function", **_function(name)} for name in self.tools]
        body: Body = {"input": items, "instructions": self.system}
        return body | ({"tools": functions} if functions else {})

    def messages(self) -> Body:
        """Return it as a request of /v1/messages."""
        messages: list[Body] = []
        for role, text in self.said:
            if role == "call":
                use = {"type": "tool_use", "id": "call-1", "name": "read", "input": {"path": text}}
                messages.append({"role": "assistant", "content": [use]})
            elif role == "result":
                result = {"type": "tool_result", "tool_use_id": "call-1", "content": text}
                messages.append({"role": "user", "content": [result]})
            else:
                messages.append({"role": role, "content": [{"type": "text", "text": text}]})
        body: Body = {"messages": messages, "max_tokens": 1}
        if self.system is not None:
            billing = f"x-anthropic-billing-header: cch={len(messages)};"
            body["system"] = [{"type": "text", "text": text} for text in (billing, self.system)]
        if self.tools:
            body["tools"] = [
                {
                    "name": name,
                    "description": "reads",
                    "input_schema": _function(name)["parameters"],
                }
                for name in self.tools
            ]
        return body


def _function(name: str) -> Body:
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    return {"name": name, "description": "reads", "parameters": parameters}


@st.composite
def sessions(draw: st.DrawFn) -> list[Conversation]:
    """Draw the turns of a session: it grows, is edited in its midst, cut short, given tools."""
    now = Conversation(draw(st.none() | texts), [("user", draw(texts))])
    turns = [deepcopy(now)]
    for _ in range(draw(st.integers(1, 5))):
        match draw(st.sampled_from(["grow", "grow", "grow", "edit", "cut", "tool", "order"])):
            case "grow":
                call = draw(st.booleans())
                now.said.append(("call" if call else "assistant", draw(texts)))
                now.said.append(("result" if call else "user", draw(texts)))
            case "edit":
                index = draw(st.integers(0, len(now.said) - 1))
                now.said[index] = (now.said[index][0], draw(texts))
            case "cut":
                now.said = now.said[draw(st.integers(0, len(now.said) - 1)) :]
            case "tool":
                now.tools.append(draw(st.sampled_from(["read", "write", "<|im_end|>"])))
            case "order":
                now.tools.reverse()
        turns.append(deepcopy(now))
    return turns
