"""A head node without an accelerator, which has vLLM's build for one."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
from vllm import platforms
platforms.builtin_platform_plugins.clear()
assert platforms.resolve_current_platform_cls_qualname().endswith("UnspecifiedPlatform")

import asyncio, json
from serve_app import app
from serve_app.config import AppConfig
from serve_app.http_message import HttpRequest

config = AppConfig(model=MODEL, engine={"max_model_len": 4096})
app.build(config)
prompts = app._prompts(config)
chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
request = HttpRequest("POST", "/v1/chat/completions", b"", (), json.dumps(chat).encode())
read = asyncio.run(prompts.read(request, None, 16))
assert read.not_rendered is None, read
prompts.close()
"""


def test_settings_and_prompts_are_read_without_an_accelerator(smollm2: Path) -> None:
    """As a gateway does there; in a process of its own, since vLLM decides on a platform once."""
    program = PROGRAM.replace("MODEL", repr(str(smollm2)))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
