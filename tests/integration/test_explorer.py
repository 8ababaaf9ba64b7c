"""The page of sessions in a browser, over a running service."""

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.explorer_shots import NARROW, WIDE, browser, opened
from tests.integration.conftest import Service

PATIENCE_MS = 15_000
HOSTILE = "<img src=x onerror=window.hacked=1>"
UPWARDS = ".."
TURNS = 3


@dataclass(frozen=True, slots=True)
class Talk:
    """Sessions that were held: the names of two, and the first one's request ids."""

    session: str
    hostile: str
    requests: list[str]


@pytest.fixture(scope="module")
def talk(service: Service) -> Talk:
    """A session of three turns, of which the last breaks its prefix, and two of strange names."""
    run = uuid.uuid4().hex[:8]
    session, hostile = f"explored-{run}", f"{HOSTILE}{run}"
    requests = [f"{session}/{turn}" for turn in range(TURNS)]
    with httpx.Client(base_url=service.url, timeout=120) as http:

        def ask(name: str, request: str, system: str, said: list[str], agent: str) -> None:
            messages = [{"role": "system", "content": system}]
            messages += [{"role": "user", "content": text} for text in said]
            body: dict[str, Any] = {"model": service.model, "messages": messages, "max_tokens": 8}
            headers = {"x-session-id": name, "x-request-id": request, "user-agent": agent}
            http.post("/v1/chat/completions", json=body, headers=headers).raise_for_status()

        said = [" ".join(f"w{i}" for i in range(150))]
        for turn, request in enumerate(requests):
            system = "You are another agent." if turn == TURNS - 1 else "You are an agent."
            ask(session, request, system, said, "claude-cli/2.0 (external, cli)")
            said.append("go on")
        ask(hostile, f"{hostile}/0", "You are an agent.", ["hello"], f"{HOSTILE}/1.0")
        for said in ([run], [run, "go on"]):
            ask(UPWARDS, UPWARDS, "You are an agent.", said, "codex/1.0")
    return Talk(session, hostile, requests)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def page(request: pytest.FixtureRequest, chromium: Browser, service: Service) -> Iterator[Page]:
    """The page as it opens; in the end nothing went wrong in it and nothing stuck out of it."""
    tab = opened(chromium, request.param)
    tab.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(f"{service.url}/warmturn")
    yield tab
    tab.close()
    assert complaints == []


def fits(page: Page) -> bool:
    """Tell whether nothing has to be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def find(page: Page, text: str) -> Locator:
    """Filter the sessions and return their rows."""
    page.get_by_role("searchbox").fill(text)
    return page.locator("tbody tr:not(.gap)")


def test_from_a_session_to_a_decision(page: Page, talk: Talk) -> None:
    """An operator finds a session, sees how its turns went, and asks why one went where it did."""
    rows = find(page, talk.session)
    expect(rows).to_have_count(1, timeout=PATIENCE_MS)
    assert fits(page)
    rows.get_by_role("link").press("Enter")
    expect(page.get_by_role("heading", name=talk.session)).to_be_visible()
    turns = page.locator(".timeline tbody tr")
    expect(turns).to_have_count(TURNS, timeout=PATIENCE_MS)
    expect(page.locator("article")).to_contain_text("claude-cli")
    expect(page.locator(".places em")).to_have_text("home")
    expect(page.locator(".places")).to_contain_text("GPU 100 %", timeout=PATIENCE_MS)
    expect(turns.first.locator(".note")).to_contain_text("tokens lost")
    expect(turns.nth(1).locator(".against")).to_have_accessible_name(re.compile("expected"))
    expect(turns.nth(1).locator(".stack")).to_have_accessible_name(re.compile(r"GPU hit \d"))
    assert fits(page)
    turns.last.get_by_role("link").click()
    expect(page.get_by_role("heading", name=talk.requests[0])).to_be_visible()
    expect(page.locator(".reason")).to_contain_text("new session")
    expect(page.locator(".candidates tbody tr")).to_have_count(2)
    expect(page.locator(".candidates .chosen")).to_have_count(1)
    assert fits(page)
    page.get_by_role("link", name=talk.session).click()
    expect(turns).to_have_count(TURNS)


def test_names_of_strangers_are_only_text(page: Page, talk: Talk) -> None:
    """A session that is called like markup is shown as it is called, and runs nothing."""
    rows = find(page, talk.hostile)
    expect(rows).to_have_count(1, timeout=PATIENCE_MS)
    expect(rows.get_by_role("link")).to_have_text(talk.hostile)
    rows.get_by_role("link").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(talk.hostile)
    expect(page.locator("article")).to_contain_text("unnamed")
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{talk.hostile}/0")
    assert page.locator("main img").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.usefixtures("talk")
def test_any_name_can_be_opened_and_be_used_again(page: Page, service: Service) -> None:
    """One that is a way through a path, of a session and of two of its requests."""
    page.goto(f"{service.url}/warmturn/#/sessions/{UPWARDS}")
    turns = page.locator(".timeline tbody tr")
    expect(turns).to_have_count(2, timeout=PATIENCE_MS)
    for number, rule in (("1", "new"), ("2", "stayed")):
        page.get_by_role("link", name=number, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(UPWARDS)
        facts = page.locator("article dl").first
        expect(facts).to_contain_text(rule)
        expect(facts).to_contain_text("answered")
        page.go_back()
        expect(turns).to_have_count(2)
    page.get_by_role("link", name="Turns").click()
    expect(page.get_by_role("link", name=UPWARDS, exact=True)).to_have_count(2)


def parts(page: Page) -> Counter[str]:
    """Return how many parts of tables a screen reader meets, by role."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    told = [node["role"]["value"] for node in tree["nodes"] if not node["ignored"]]
    return Counter(role for role in told if role in ("table", "row", "rowheader", "columnheader"))


@pytest.mark.usefixtures("talk")
def test_opened_where_the_skip_link_leads(page: Page, service: Service) -> None:
    """There is a page, as there is at any other address."""
    page.goto("about:blank")
    page.goto(f"{service.url}/warmturn/#view")
    expect(page.get_by_role("table", name="Sessions")).to_be_visible(timeout=PATIENCE_MS)


@pytest.mark.usefixtures("talk")
def test_a_clock_that_is_set_back(chromium: Browser, service: Service) -> None:
    """The list goes on."""
    page = chromium.new_page()
    page.add_init_script("let now = Date.now(); Date.now = () => (now -= 5000);")
    with page.expect_response(re.compile("within_s=")) as answer:
        page.goto(f"{service.url}/warmturn/")
    assert answer.value.status == 200
    page.close()


def test_tables_stay_tables(page: Page, service: Service, talk: Talk) -> None:
    """Who hears a page learns what each number is, also where a narrow screen shows no heads."""
    page.goto(f"{service.url}/warmturn/#/sessions/{talk.session}")
    expect(page.locator(".timeline tbody tr")).to_have_count(TURNS, timeout=PATIENCE_MS)
    told = parts(page)
    assert (told["table"], told["row"], told["rowheader"]) == (1, 1 + TURNS, TURNS)
    assert (
        told["columnheader"]
        == page.locator(".timeline tbody tr").first.locator("css=td:visible, th:visible").count()
    )
    page.get_by_role("link", name="Replicas").click()
    expect(page.locator(".replicas tbody tr")).to_have_count(2, timeout=PATIENCE_MS)
    told = parts(page)
    assert (told["table"], told["row"], told["rowheader"]) == (1, 3, 2)
    assert (
        told["columnheader"]
        == page.locator(".replicas tbody tr").first.locator("css=td:visible, th:visible").count()
    )


def test_sorted_filtered_and_shared(page: Page, talk: Talk) -> None:
    """By any column, either way, by keys; the address says what is chosen."""
    rows = find(page, talk.session[-8:])
    expect(rows).to_have_count(2, timeout=PATIENCE_MS)
    header = page.get_by_role("columnheader", name="Session")
    for order, first in (("ascending", talk.hostile), ("descending", talk.session)):
        header.get_by_role("button").press("Enter")
        expect(header).to_have_attribute("aria-sort", order)
        expect(rows.first.get_by_role("link")).to_have_text(first)
    rows.first.get_by_role("link").press("ArrowDown")
    expect(rows.last.get_by_role("link")).to_be_focused()
    page.get_by_label("All clients").select_option("claude-cli")
    expect(rows).to_have_count(1)
    assert "client=claude-cli" in page.url
    page.reload()
    expect(rows).to_have_count(1, timeout=PATIENCE_MS)
    expect(rows.get_by_role("link")).to_have_text(talk.session)


def test_replicas_and_the_last_turns(page: Page, talk: Talk) -> None:
    """Both replicas are there and in sync; each turn of the session is among the last ones."""
    page.get_by_role("link", name="Replicas").click()
    rows = page.locator(".replicas tbody tr")
    expect(rows).to_have_count(2, timeout=PATIENCE_MS)
    expect(rows.first).to_contain_text("in sync")
    expect(page.locator("article")).to_contain_text("variance by mean")
    assert fits(page)
    page.get_by_role("link", name="Turns").click()
    expect(page.get_by_role("link", name=talk.requests[-1])).to_be_visible(timeout=PATIENCE_MS)
    assert fits(page)


def test_a_router_that_is_silent_is_said_to_be(chromium: Browser, service: Service) -> None:
    """In words, until it answers again."""
    page = opened(chromium, WIDE)
    path, error = "**/warmturn/sessions?*", {"error": {"message": "the router is silent"}}
    page.route(path, lambda route: route.fulfill(status=503, json=error))
    page.goto(f"{service.url}/warmturn/")
    expect(page.get_by_role("alert")).to_contain_text("The router is silent.", timeout=PATIENCE_MS)
    page.unroute(path)
    expect(page.get_by_role("alert")).to_be_hidden(timeout=PATIENCE_MS)
    page.close()
