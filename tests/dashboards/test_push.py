"""Pushing to Grafana, against a server that speaks its API."""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from benchmarks.live_service import free_port
from dashboards.grafana_json import DATA_SOURCE_UID
from dashboards.push import app
from dashboards.registry import DASHBOARDS
from tests.dashboards.fake_grafana import TOKEN, FakeGrafana, running_grafana

ALL = 2 + len(DASHBOARDS)
UID = "warmturn-routing"
PROMETHEUS = "http://prometheus:9090"


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    """An empty Grafana."""
    with running_grafana() as running:
        yield running


def run(url: str, token: str = TOKEN) -> tuple[int, list[str]]:
    """Push; return the exit status and the lines that are said."""
    result = CliRunner().invoke(app, ["--url", url, "--token", token, "--prometheus", PROMETHEUS])
    return result.exit_code, result.output.splitlines()


def test_everything_is_created(grafana: FakeGrafana) -> None:
    """Dashboards lie in the folder, and the data source points to Prometheus."""
    status, said = run(grafana.url)
    assert (status, len(said)) == (0, ALL)
    assert all(line.endswith(": created") for line in said)
    assert set(grafana.dashboards) == set(DASHBOARDS)
    assert set(grafana.folder_of.values()) == set(grafana.folders) == {"warmturn"}
    assert grafana.data_sources[DATA_SOURCE_UID]["url"] == PROMETHEUS


def test_pushing_again_writes_nothing(grafana: FakeGrafana) -> None:
    """Grafana's history of versions stays readable."""
    run(grafana.url)
    grafana.writes.clear()
    status, said = run(grafana.url)
    assert status == 0
    assert all(line.endswith(": unchanged") for line in said)
    assert grafana.writes == []


def test_what_differs_is_updated(grafana: FakeGrafana) -> None:
    """A dashboard that was edited or moved by hand, and a data source that points elsewhere."""
    run(grafana.url)
    grafana.dashboards[UID]["panels"] = []
    grafana.dashboards[UID]["version"] = 5
    grafana.folder_of["warmturn-engines"] = "elsewhere"
    grafana.data_sources[DATA_SOURCE_UID]["url"] = "http://old:9090"
    status, said = run(grafana.url)
    assert status == 0
    assert sum(line.endswith(": updated") for line in said) == 3
    assert grafana.dashboards[UID]["version"] == 6
    assert grafana.dashboards[UID]["panels"]
    assert grafana.folder_of["warmturn-engines"] == "warmturn"
    assert grafana.data_sources[DATA_SOURCE_UID]["url"] == PROMETHEUS
    assert grafana.data_sources[DATA_SOURCE_UID]["isDefault"] is False


def test_an_edit_at_the_same_time_wins(grafana: FakeGrafana) -> None:
    """A version conflict is told, nothing is overwritten, and the others are pushed."""
    run(grafana.url)
    for one in grafana.dashboards.values():
        one["panels"] = []

    def edit() -> None:
        grafana.dashboards["warmturn-overview"] |= {"version": 9, "title": "mine"}

    grafana.before_save = edit
    status, said = run(grafana.url)
    assert status == 1
    [failed] = [line for line in said if line.startswith("failed")]
    assert failed == (
        "failed: dashboard warmturn-overview: The dashboard has been changed by someone else (412)"
    )
    assert grafana.dashboards["warmturn-overview"]["title"] == "mine"
    assert sum(line.endswith(": updated") for line in said) == len(DASHBOARDS) - 1


@pytest.mark.parametrize("conflict", [409, 412])
def test_a_folder_that_somebody_else_just_created(grafana: FakeGrafana, conflict: int) -> None:
    """Two pushes at a time: the second finds what the first made."""
    grafana.folder_conflict = conflict
    taken = {"uid": "warmturn", "title": "warmturn"}
    found = [(404, {"message": "folder not found"})]
    answer = grafana.answer

    def race(method: str, path: str, token: str | None, body: object) -> tuple[int, dict]:  # type: ignore[type-arg]
        if path == "/api/folders/warmturn" and found:
            grafana.folders["warmturn"] = taken
            return found.pop()
        return answer(method, path, token, body)

    grafana.answer = race  # type: ignore[method-assign]
    status, said = run(grafana.url)
    assert (status, said[0]) == (0, "folder: unchanged")


def test_another_folder_of_that_name(grafana: FakeGrafana) -> None:
    """Grafana refuses it; what is in the way is named, also for the dashboards."""
    grafana.folders["abc"] = {"uid": "abc", "title": "warmturn"}
    status, said = run(grafana.url)
    assert status == 1
    assert "failed: the folder: another folder is called warmturn: rename or delete it" in said
    assert sum(line.startswith("failed: dashboard") for line in said) == len(DASHBOARDS)


def test_another_data_source_of_that_name(grafana: FakeGrafana) -> None:
    """It's said; dashboards are pushed all the same, as a data source can be chosen there."""
    grafana.data_sources["abc"] = {"uid": "abc", "name": DATA_SOURCE_UID}
    status, said = run(grafana.url)
    assert status == 1
    reason = "data source with the same name already exists (409)"
    assert f"failed: the data source: {reason}" in said
    assert set(grafana.dashboards) == set(DASHBOARDS)


def test_a_wrong_token(grafana: FakeGrafana) -> None:
    """It's said once."""
    status, said = run(grafana.url, token="glsa_wrong")
    assert (status, said) == (1, [f"failed: {grafana.url} refuses the token (401)"])


def test_a_token_from_a_file(grafana: FakeGrafana) -> None:
    """It may end with a newline."""
    assert run(grafana.url, f" {TOKEN}\r\n")[0] == 0


@pytest.mark.parametrize("token", ["", "\n", "glsa_a\nb", "glsa_ä", "glsa_\x7f", "\ufeffglsa_a"])
def test_what_is_no_token(grafana: FakeGrafana, token: str) -> None:
    """It's neither sent nor shown."""
    grafana.fails = 500
    assert run(grafana.url, token) == (1, ["failed: the token is empty, or not printable ASCII"])


def test_tracebacks_have_no_values() -> None:
    """The token would be among them."""
    assert app.pretty_exceptions_show_locals is False


def test_a_token_that_may_only_read(grafana: FakeGrafana) -> None:
    """Each thing that it may not do is named, and the role that it needs."""
    grafana.role = "Viewer"
    status, said = run(grafana.url)
    assert (status, len(said)) == (1, ALL)
    assert all("the token may not do this (403): its role has to be Admin" in one for one in said)


def test_a_grafana_that_fails(grafana: FakeGrafana) -> None:
    """What it says itself is passed on."""
    grafana.fails = 500
    status, said = run(grafana.url)
    assert (status, said[0]) == (1, "failed: the folder: Grafana fails: database is locked")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, "<p>No message for you"),
        (404, "<p>No message for you"),
        (401, {"detail": "Who are you?"}),
        (403, ["message"]),
        (500, 5),
    ],
)
def test_an_error_that_is_not_grafanas(grafana: FakeGrafana, status: int, body: object) -> None:
    """A proxy's page, as an instance: it's said once, and not shown."""
    grafana.foreign["*"] = status, body
    reason = f"what answers at {grafana.url} is no Grafana: its error {status} has no message"
    assert run(grafana.url) == (1, [f"failed: {reason}"])


@pytest.mark.parametrize("body", [{"ok": True}, [], {}, None, {"uid": "another"}])
def test_another_server(grafana: FakeGrafana, body: object) -> None:
    """It's said once; nothing is told to have been done."""
    grafana.foreign["*"] = 200, body
    assert run(grafana.url) == (1, [_no_grafana(grafana)])


def test_a_server_that_speaks_no_json(grafana: FakeGrafana) -> None:
    """It's said once."""
    grafana.foreign["*"] = 200, "<p>Welcome"
    reason = f"no Grafana answers at {grafana.url}: what answers there speaks no JSON"
    assert run(grafana.url) == (1, [f"failed: {reason}"])


@pytest.mark.parametrize(
    ("asked", "done"),
    [
        ("POST /api/folders", 0),
        (f"GET /api/datasources/uid/{DATA_SOURCE_UID}", 1),
        ("POST /api/datasources", 1),
        ("GET /api/dashboards/uid/warmturn-overview", 2),
        ("POST /api/dashboards/db", 2),
    ],
)
@pytest.mark.parametrize("body", [[], {"dashboard": []}])
def test_what_is_not_confirmed_is_not_told(
    grafana: FakeGrafana, asked: str, done: int, body: object
) -> None:
    """A redirect may lead elsewhere, for one thing or for all."""
    grafana.foreign[asked] = 200, body
    status, said = run(grafana.url)
    assert (status, len(said), said[-1]) == (1, done + 1, _no_grafana(grafana))


def test_an_update_that_is_not_confirmed(grafana: FakeGrafana) -> None:
    """It's not told either."""
    grafana.data_sources[DATA_SOURCE_UID] = {"uid": DATA_SOURCE_UID, "version": 1}
    grafana.foreign[f"PUT /api/datasources/uid/{DATA_SOURCE_UID}"] = 200, []
    assert run(grafana.url) == (1, ["folder: created", _no_grafana(grafana)])


def _no_grafana(grafana: FakeGrafana) -> str:
    reason = "it does not answer as Grafana's API does"
    return f"failed: what answers at {grafana.url} is no Grafana: {reason}"


def test_a_grafana_that_is_down() -> None:
    """It's said once, with the URL."""
    url = f"http://127.0.0.1:{free_port()}"
    status, said = run(url)
    assert status == 1
    assert said == [f"failed: no Grafana answers at {url}: [Errno 111] Connection refused"]


@pytest.mark.parametrize(
    "url", ["grafana:3000", "ftp://grafana", "http://grafana:abc", "http://[::1", ""]
)
def test_what_is_no_url(url: str) -> None:
    """The form is said."""
    status, said = run(url)
    assert (status, said) == (1, [f"failed: {url} is no URL of the form http://host:port"])


def test_what_is_no_host() -> None:
    """It's said once, in the words of who looks for it."""
    url = "http://grafana..example:3000"
    reason = "'grafana..example', label empty or too long"
    assert run(url) == (1, [f"failed: no Grafana answers at {url}: {reason}"])


def test_a_grafana_under_a_path() -> None:
    """As behind a proxy."""
    with running_grafana("/monitoring") as grafana:
        assert run(grafana.url + "/")[0] == 0
        assert set(grafana.dashboards) == set(DASHBOARDS)
