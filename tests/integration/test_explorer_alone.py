"""The page of sessions in a browser, over made-up answers: what a real fleet seldom shows."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from policies.fleet_load import dispersion_ratio
from serve_app import console
from serve_app.page import page_routes
from tests.explorer_shots import WIDE, browser, opened
from tests.serving import serving

PATIENCE_MS = 15_000
MANY = 500

Json = dict[str, Any]

UNPLACED = dict.fromkeys(
    ("decided_at", "replica", "rule", "cached_tokens", "expected_ttft_s", "ttft_s")
)
"""What is not known of a turn that no replica got."""


def make_session(number: int, **changes: Any) -> Json:
    """Return a session as the list has it; the higher its number, the longer ago it was seen."""
    return {
        "session": f"session-{number:03}",
        "client": "codex",
        "replica": "r1",
        "turns": 1,
        "blocks": 1,
        "think_s": 1.0,
        "running": False,
        "waits": False,
        "seen_s_ago": 60.0 + number,
        "prompt_tokens": 32,
        "ttft_s": 0.1,
        "hit_ratio": 0.5,
    } | changes


def make_turn(number: int, **changes: Any) -> Json:
    """Return a turn as the list of all has it, answered unless it is said otherwise."""
    return {
        "id": f"q{number}",
        "request": f"turn-{number:03}",
        "session": "s1",
        "state": "answered",
        "arrived_at": f"2026-01-01T00:{number // 60:02}:{number % 60:02}.000+00:00",
        "decided_at": f"2026-01-01T00:{number // 60:02}:{number % 60:02}.500+00:00",
        "replica": "r1",
        "rule": "stayed",
        "prompt_tokens": 32,
        "expected_cached_tokens": 0,
        "cached_tokens": 0,
        "expected_ttft_s": 0.1,
        "ttft_s": 0.1,
    } | changes


def make_story(*turns: Json, now: Json | None) -> Json:
    """Return how a session went: turns as the list of all has them, and what its page says more."""
    more = {"prefix_break": None, "waited_s": 0.0, "output_tokens": None, "tokens": None}
    numbered = [{"turn": number} | turn | more for number, turn in enumerate(turns, 1)]
    fixed = {"session": "s1", "client": None, "kv": None, "forgotten_turns": 0}
    return fixed | {"now": now, "turns": numbered}


def make_replica(name: str, **changes: Any) -> Json:
    """Return an idle replica."""
    return {
        "replica": name,
        "requests": 0,
        "running": 0,
        "waiting": 0,
        "max_requests": 8,
        "total_blocks": 100,
        "pinned_blocks": 0,
        "gpu_blocks": 0,
        "cpu_blocks": 0,
        "cpu_total_blocks": 0,
        "resident_sessions": 0.0,
        "booked_uncached_tokens": 0,
        "prefill_tokens_per_s": 1000.0,
        "synced": True,
        "draining": False,
    } | changes


@dataclass(slots=True)
class FakeGateway:
    """Serves the page, and answers it with what there is at that time."""

    sessions: list[Json] = field(default_factory=list)
    turns: list[Json] = field(default_factory=list)
    replicas: list[Json] = field(default_factory=list)
    settings_error: str | None = None
    hangs: bool = False
    story: Json = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        """The application."""

        async def sessions(_: Request) -> JSONResponse:
            return JSONResponse({"sessions": self.sessions})

        async def decisions(_: Request) -> JSONResponse:
            return JSONResponse({"decisions": self.turns})

        async def session(_: Request) -> JSONResponse:
            return JSONResponse(self.story)

        async def replicas(_: Request) -> JSONResponse:
            while self.hangs:
                await asyncio.sleep(0.05)
            ratio = dispersion_ratio([one["requests"] for one in self.replicas])
            router = {
                "synced_replicas": len(self.replicas),
                "waiting": 0,
                "session_limit": None,
                "sessions": 0,
                "blocks": 0,
                "shared_blocks": 0,
                "started_s_ago": 9.0,
                "autoscaling": None,
            }
            told = {"dispersion_ratio": ratio, "replicas": self.replicas, "router": router}
            return JSONResponse(told | {"settings_error": self.settings_error})

        return Starlette(
            routes=[
                *page_routes(),
                Route("/warmturn/sessions", sessions),
                Route("/warmturn/sessions/", session),
                Route("/warmturn/decisions", decisions),
                Route("/warmturn/replicas", replicas),
            ]
        )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with browser() as running:
        yield running


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(sessions=[make_session(number) for number in range(MANY)])


@pytest.fixture
def page(chromium: Browser, gateway: FakeGateway) -> Iterator[Page]:
    """The page of replicas as it opens; in the end nothing failed in it."""
    with serving(gateway.app) as url:
        tab = opened(chromium, WIDE)
        errors: list[str] = []
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(f"{url}/warmturn/#/replicas")
        yield tab
        gateway.hangs = False
        tab.close()
    assert errors == []


def go(page: Page, place: str) -> None:
    """Open one of the pages."""
    page.evaluate("place => { location.hash = place; }", place)


def focused(page: Page) -> str | None:
    """Return the name of the row that has the focus."""
    name: str | None = page.evaluate(
        "document.activeElement.closest('tbody a')?.textContent ?? null"
    )
    return name


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "waits"},
        {"state": "refused"},
        {"state": "runs", "decided_at": "2026-01-01T01:00:00.000+00:00", "rule": "new"},
    ],
    ids=["waits", "refused", "runs"],
)
def test_the_turn_that_came_last_is_first(page: Page, gateway: FakeGateway, changes: Json) -> None:
    """Whether or not anything was decided on it."""
    last = make_turn(MANY, **UNPLACED | changes)
    gateway.turns = [make_turn(number) for number in range(MANY)] + [last]
    go(page, "#/decisions")
    first = page.locator("tbody tr:not(.gap)").first
    expect(first).to_contain_text("turn-500")
    expect(first.locator("td").last).to_have_text(re.compile(":20$"))


@pytest.mark.parametrize(
    ("requests", "verdict"),
    [
        ((0, 0), "0.00 nothing runs"),
        ((2, 2), "0.00 more even than if"),
        ((3, 1), "0.50 as even as if"),
        ((4, 1), "0.90 less even than if"),
        ((2, 0, 1), "0.67 as even as if"),
    ],
)
def test_how_even_the_load_is(
    page: Page, gateway: FakeGateway, requests: tuple[int, ...], verdict: str
) -> None:
    """Compared with what placing each request at random gives on so many replicas."""
    gateway.replicas = [make_replica(f"r{at}", requests=one) for at, one in enumerate(requests)]
    expect(page.locator("article")).to_contain_text(verdict)


def test_one_replica_alone_is_not_judged(page: Page, gateway: FakeGateway) -> None:
    """There is nothing that its load could be even with."""
    gateway.replicas = [make_replica("r1", requests=3)]
    expect(page.locator(".replicas tbody tr")).to_have_count(1)
    expect(page.locator("article")).not_to_contain_text("variance by mean")


def test_what_cpu_memory_holds(page: Page, gateway: FakeGateway) -> None:
    """Also before a replica knows how large it is."""
    gateway.replicas = [
        make_replica("r1"),
        make_replica("r2", cpu_blocks=1234),
        make_replica("r3", cpu_blocks=50, cpu_total_blocks=200),
    ]
    cells = page.locator(".replicas tbody td.bar:nth-child(7)")
    expect(cells).to_have_text(["none", "1,234 blocks, size not known yet", "25 %"])


def test_a_gateway_that_hangs_is_said_not_to_answer(page: Page, gateway: FakeGateway) -> None:
    """Until it answers again."""
    gateway.replicas = [make_replica("r1")]
    page.add_init_script(
        "const timeout = AbortSignal.timeout;"
        "AbortSignal.timeout = (ms) => timeout.call(AbortSignal, ms / 20);"
    )
    gateway.hangs = True
    page.reload()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The gateway does not answer within 10 s. Asking again.")
    gateway.hangs = False
    expect(alert).to_be_hidden()
    expect(page.locator(".replicas tbody tr")).to_have_count(1)


def test_no_time_is_made_up_for_a_first_turn_that_runs(page: Page, gateway: FakeGateway) -> None:
    """The slowest time to the first token is that of a turn that has one."""
    runs = make_turn(1, state="runs", ttft_s=None, cached_tokens=None)
    now = make_session(1, running=True, ttft_s=None, hit_ratio=None)
    gateway.story = make_story(runs, now=now)
    go(page, "#/sessions/s1")
    facts = page.locator(".facts")
    expect(facts).to_contain_text("Broken prefixes")
    expect(facts).not_to_contain_text("Slowest TTFT")
    gateway.story = make_story(runs, runs | {"id": "q2", "ttft_s": 0.25}, now=now)
    expect(facts).to_contain_text("Slowest TTFT0.25 s")


def test_a_session_that_waits_is_seen_and_goes(page: Page, gateway: FakeGateway) -> None:
    """Also one that has run nowhere yet, which is forgotten when it is turned away."""
    unknown = dict.fromkeys(("replica", "blocks", "think_s", "ttft_s", "hit_ratio"))
    new = make_session(700, turns=0, waits=True, seen_s_ago=0) | unknown
    again = make_session(3, waits=True)
    gateway.sessions = [new, again]
    go(page, "#/sessions")
    expect(page.locator(".total")).to_have_text("2 sessions, 0 running, 2 waiting")
    expect(page.get_by_role("row", name="session-700")).to_contain_text("waits")
    gateway.sessions = []
    expect(page.locator(".total")).to_have_text("1 sessions, 0 running")
    expect(page.get_by_role("row", name="session-003")).to_contain_text("1 min")


def test_turns_without_a_place_are_told(page: Page, gateway: FakeGateway) -> None:
    """Those that were turned away and the one that waits, between those that ran."""
    refused = make_turn(1, state="refused") | UNPLACED
    ran, waits = make_turn(2), make_turn(3, state="waits") | UNPLACED
    gateway.story = make_story(refused, waits, now=None)
    go(page, "#/sessions/s1")
    facts = page.locator(".facts")
    expect(facts).to_contain_text("Lives onnowhere yet")
    expect(facts).to_contain_text("Statewaits")
    gateway.story = make_story(refused, ran, waits, now=make_session(1))
    expect(facts).to_contain_text("Lives onr1")
    rows = page.locator(".timeline tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("waits")
    expect(rows.nth(2)).to_contain_text("turned away: too many sessions ran")
    expect(page.locator(".timeline svg.lanes")).to_have_count(1)
    expect(rows.nth(0).locator(".time")).to_have_text(re.compile(":03$"))


def test_news_are_asked_for_as_far_back_as_an_answer_may_be_old(page: Page) -> None:
    """The router may have answered at once before, and now as late as the gateway lets it."""
    go(page, "#/sessions")
    with page.expect_request(re.compile("within_s=")) as asked:
        pass
    [within_s] = re.findall(r"within_s=([\d.]+)", asked.value.url)
    assert float(within_s) > 2 + console.TIMEOUT_S


def test_a_list_scrolls_as_far_as_it_is_asked(page: Page) -> None:
    """It does not run on, though its rows are drawn anew."""
    go(page, "#/sessions")
    expect(page.get_by_role("link", name="session-000")).to_be_visible()
    scroller = page.locator(".scroller")
    for first, top in ((125, 4000), (146, 4700)):
        scroller.evaluate("(element, top) => element.scrollTo(0, top)", top)
        expect(page.get_by_role("link", name=f"session-{first}")).to_be_visible()
        page.wait_for_timeout(200)
        assert scroller.evaluate("element => element.scrollTop") == top


@pytest.mark.parametrize("way", ["sorted", "scrolled"])
def test_tab_leads_to_a_row_again(page: Page, way: str) -> None:
    """After another order was chosen far down, and wherever the table is scrolled to."""
    go(page, "#/sessions")
    rows = page.locator("tbody tr:not(.gap)")
    header = page.get_by_role("columnheader", name="Seen").get_by_role("button")
    rows.first.get_by_role("link").focus()
    page.keyboard.press("End")
    expect(page.get_by_role("link", name="session-499")).to_be_focused()
    header.focus()
    if way == "sorted":
        page.keyboard.press("Enter")
        expect(rows.first).to_contain_text("session-499")
    else:
        page.locator(".scroller").evaluate("element => element.scrollTo(0, 4000)")
        expect(page.get_by_role("link", name="session-125")).to_be_visible()
    page.keyboard.press("Tab")
    assert (focused(page) or "").startswith("session-")


def test_the_focus_never_passes_to_another_session(page: Page, gateway: FakeGateway) -> None:
    """It waits where its row is out of sight, and Enter opens none; then keys go on from it."""
    go(page, "#/sessions")
    page.get_by_role("link", name="session-003").focus()
    page.locator(".scroller").evaluate("element => element.scrollTo(0, 8000)")
    expect(page.get_by_role("link", name="session-250")).to_be_visible()
    assert focused(page) is None
    page.keyboard.press("Enter")
    assert page.url.endswith("#/sessions")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="session-004")).to_be_focused()
    gateway.sessions[4] = make_session(4, seen_s_ago=1000.0)
    gateway.sessions[300] = make_session(300, running=True, seen_s_ago=0.0)
    expect(page.locator("tbody tr:not(.gap)").first).to_contain_text("session-300")
    assert focused(page) is None
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("link", name="session-499")).to_be_focused()


def test_a_row_keeps_the_focus_where_it_goes(page: Page, gateway: FakeGateway) -> None:
    """As long as it is drawn; Tab comes back to it."""
    go(page, "#/sessions")
    row = page.get_by_role("link", name="session-005")
    row.focus()
    gateway.sessions[5] = make_session(5, seen_s_ago=0.0)
    expect(page.locator("tbody tr:not(.gap)").first).to_contain_text("session-005")
    expect(row).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(row).not_to_be_focused()
    page.keyboard.press("Tab")
    expect(row).to_be_focused()


def test_the_skip_link_leaves_the_address(page: Page) -> None:
    """Who reloads sees the same page."""
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/replicas")


def test_news_do_not_undo_a_click(page: Page) -> None:
    """The address is kept where it leads to another page, though this one is still shown."""
    go(page, "#/sessions?order=up")
    expect(page.get_by_role("link", name="session-499")).to_be_visible()
    page.evaluate(
        "location.hash = '#/replicas';"
        "document.querySelector('[type=search]').dispatchEvent(new Event('input'));"
    )
    expect(page.locator("[aria-current]")).to_have_text("Replicas")
    assert page.url.endswith("#/replicas")


def stays(page: Page, alert: Locator) -> bool:
    """Tell whether an alert's words are left as they are while the gateway answers again."""
    alert.evaluate("element => { window.before = element.firstChild; }")
    for _ in range(2):
        with page.expect_response("**/warmturn/replicas"):
            pass
    return bool(alert.evaluate("element => element.firstChild === window.before"))


def test_what_goes_on_is_said_once(page: Page, gateway: FakeGateway) -> None:
    """An alert that is written anew is read out anew."""
    gateway.settings_error = "a typo"
    refused = page.locator("article").get_by_role("alert")
    expect(refused).to_have_text("New settings are refused: a typo")
    assert stays(page, refused)
    silent = {"error": {"message": "the router is silent"}}
    page.route("**/warmturn/replicas", lambda route: route.fulfill(status=503, json=silent))
    trouble = page.locator("#trouble")
    expect(trouble).to_have_text("The router is silent. Asking again.")
    assert stays(page, trouble)
