"""The name of the program that speaks."""

import pytest

from serve_app.client_name import client_name


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        (b"claude-cli/2.0.14 (external, cli)", "claude-cli"),
        (b"codex_cli_rs/0.46.0 (Debian 12; x86_64)", "codex_cli_rs"),
        (b"AsyncOpenAI/Python 1.109.1", "AsyncOpenAI"),
        (b"curl", "curl"),
        (b"Zed 0.9", "Zed"),
        (b"", None),
        (b"<img src=x onerror=alert(1)>", None),
        (b"x" * 33, None),
        (b"caf\xe9/1.0", None),
        (b" spaced/1.0", None),
    ],
)
def test_only_a_short_plain_product_is_a_name(sent: bytes, name: str | None) -> None:
    """Versions and comments are left out, and what is no product is nothing."""
    assert client_name(((b"user-agent", sent),)) == name


def test_a_client_without_a_name() -> None:
    """The header may be missing."""
    assert client_name(()) is None
