"""The page's files: what a browser is given, and what it is not."""

import re

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from serve_app.page import page_routes


async def _get(
    path: str, headers: dict[str, str] | None = None, prefix: str = ""
) -> httpx.Response:
    app = Starlette(routes=page_routes())
    if prefix:
        app = Starlette(routes=[Mount(prefix, app)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.get(f"{prefix}{path}", headers=headers)


@pytest.mark.parametrize("prefix", ["", "/behind/a/proxy"])
async def test_the_page_has_all_that_it_names(prefix: str) -> None:
    """Each file with its type, wherever the gateway is mounted."""
    entered = await _get("/warmturn", prefix=prefix)
    assert entered.is_redirect
    assert entered.next_request is not None
    assert entered.next_request.url.path == f"{prefix}/warmturn/"
    page = await _get("/warmturn/", prefix=prefix)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    named = re.findall(r'(?:href|src)="(explorer/[^"]+)"', page.text)
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert {name.rpartition(".")[2] for name in named} == set(types)
    for name in named:
        file = await _get(f"/warmturn/{name}", prefix=prefix)
        assert file.status_code == 200
        assert file.headers["content-type"].startswith(types[name.rpartition(".")[2]])


async def test_modules_import_what_there_is() -> None:
    """One that is missing would leave the page empty."""
    seen, ahead = set(), ["main.js"]
    while ahead:
        name = ahead.pop()
        file = await _get(f"/warmturn/explorer/{name}")
        assert file.status_code == 200, name
        seen.add(name)
        ahead += set(re.findall(r'from "\./([^"]+)"', file.text)) - seen
    assert len(seen) > 10


@pytest.mark.parametrize("path", ["/warmturn/", "/warmturn/explorer/main.js"])
async def test_a_browser_may_run_nothing_else(path: str) -> None:
    """Nothing that is not served here, nothing inline, and nothing of another type."""
    headers = (await _get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self';" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


async def test_what_a_browser_has_is_not_sent_again() -> None:
    """It asks each time, so that a new version is seen at once."""
    first = await _get("/warmturn/explorer/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = await _get("/warmturn/explorer/main.js", {"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await _get("/warmturn/explorer/main.js", {"if-none-match": '"older"'})
    assert (other.status_code, other.content) == (200, first.content)


@pytest.mark.parametrize(
    "name",
    [
        "none.js",
        "",
        "../page.py",
        "..%2fpage.py",
        "%2e%2e/%2e%2e/pyproject.toml",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "main.js%00",
        "main.js/",
    ],
)
async def test_nothing_else_is_given(name: str) -> None:
    """Only the page's own files have names here."""
    answer = await _get(f"/warmturn/explorer/{name}")
    assert answer.status_code == 404


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour such as #00ff80, as WCAG 2 defines it."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_what_was_first_seen_is_told_apart_from_nothing() -> None:
    """In light and dark its part of a bar stands out from the track, as WCAG asks of graphics."""
    theme = (await _get("/warmturn/explorer/theme.css")).text
    colours = [re.findall(rf"--{name}: (#\w{{6}});", theme) for name in ("first", "raised")]
    pairs = list(zip(*colours, strict=True))
    assert len(pairs) == 2
    for pair in pairs:
        darker, lighter = sorted(map(_luminance, pair))
        assert (lighter + 0.05) / (darker + 0.05) >= 3


async def test_the_scripts_never_parse_data() -> None:
    """Names of sessions come from strangers: they become text, not markup."""
    seen, ahead = set(), ["main.js"]
    while ahead:
        name = ahead.pop()
        source = (await _get(f"/warmturn/explorer/{name}")).text
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", source
        )
        seen.add(name)
        ahead += set(re.findall(r'from "\./([^"]+)"', source)) - seen
