"""Takes the pictures of the page of sessions that the documents show, of a running service.

python -m tests.explorer_shots --url http://127.0.0.1:8000 --out docs/img
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import typer
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
WIDE, NARROW = (1440, 900), (390, 844)
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@contextmanager
def browser() -> Iterator[Browser]:
    """Return Debian's Chromium, running; in a container it has no sandbox of its own."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def opened(running: Browser, size: tuple[int, int], scheme: Scheme = "light") -> Page:
    """Return an empty page of this size."""
    width, height = size
    page = running.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page.set_default_timeout(15_000)
    return page


def shown(url: str) -> dict[str, str]:
    """Return the addresses of what is worth a picture: the session that most happened to."""

    def ask(path: str) -> Any:
        return httpx.get(f"{url}/warmturn/{path}", timeout=30).raise_for_status().json()

    sessions = ask("sessions?limit=1000")["sessions"]
    told = [ask(f"sessions/{one['session']}") for one in sessions]
    session, turns = max(((one["session"], one["turns"]) for one in told), key=_happenings)
    slowest = max(turns[1:], key=lambda turn: turn["ttft_s"] or 0)["request"]
    return {
        "sessions": "#/sessions",
        "session": f"#/sessions/{session}",
        "decision": f"#/decisions/{slowest}",
        "replicas": "#/replicas",
    }


def _happenings(told: tuple[str, list[dict[str, Any]]]) -> tuple[int, int]:
    """Return how many replicas a session was at and breaks it had, and how long it is."""
    _, turns = told
    breaks = sum(turn["prefix_break"] is not None for turn in turns)
    return len({turn["replica"] for turn in turns}) + breaks, len(turns)


def shoot(
    url: Annotated[str, typer.Option(help="A running service.")] = "http://127.0.0.1:8000",
    out: Annotated[Path, typer.Option(help="A directory.")] = Path("docs/img"),
) -> None:
    """Take each picture in light and dark, and two on a narrow screen."""
    pages = shown(url)
    wanted = [(name, WIDE, scheme) for name in pages for scheme in SCHEMES]
    narrow = [(name, NARROW, SCHEMES[0]) for name in ("sessions", "session")]
    with browser() as running:
        for name, size, scheme in wanted + narrow:
            page = opened(running, size, scheme)
            page.goto(f"{url}/warmturn/{pages[name]}")
            page.wait_for_selector("main:not([aria-busy])")
            suffix = scheme if size == WIDE else "390"
            page.screenshot(path=out / f"explorer-{name}-{suffix}.png")
            page.close()


if __name__ == "__main__":
    typer.run(shoot)
