"""What a failed deployment is told as, and how progress is."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from serve_app import local_cluster, serve_file
from serve_app.local_cluster import DeployError, LocalCluster, deploy, states

TRACEBACK = """Failed to update the deployments ['engine'].
RuntimeError: Traceback (most recent call last):
  File "engine.py", line 43, in _start
OSError: We couldn't connect to the model hub, and couldn't find the files.
Check your internet connection.
"""


class FakeServeApi(ThreadingHTTPServer):
    """Answers each request with the next of the given (status, content) pairs."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.answers = list(answers)
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: FakeServeApi

    def do_GET(self) -> None:
        status, content = self.server.answers.pop(0)
        body = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServeApi]:
    monkeypatch.setattr(local_cluster, "POLL_S", 0.01)
    with FakeServeApi() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def _cluster(api: FakeServeApi, logs: Path) -> LocalCluster:
    return LocalCluster(f"http://127.0.0.1:{api.server_port}", logs)


def _status(status: str, running: int, message: str = "") -> tuple[int, object]:
    replicas = [{"state": "RUNNING"}] * running + [{"state": "STARTING"}] * (2 - running)
    engine = {
        "name": "engine",
        "target_num_replicas": 2,
        "replicas": replicas,
        "message": message,
    }
    app = {"status": status, "message": "Failed to update.", "deployments": {"engine": engine}}
    return 200, {"applications": {"warmturn": app}}


@pytest.mark.parametrize("name", ["serve.yaml", "serve.gpu.yaml"])
def test_proxies_take_the_same_way_as_replicas(name: str) -> None:
    """Serve's proxies on this machine get the flags that the application's processes get."""
    application = serve_file.app(serve_file.load(Path(__file__).parents[1] / name))
    flags = application["runtime_env"]["env_vars"].items()
    wanted = {key: value for key, value in flags if key.startswith("RAY_SERVE_")}
    assert len(wanted) == 4
    assert wanted.items() <= local_cluster.ENVIRONMENT.items()


def test_progress_until_it_runs(api: FakeServeApi, tmp_path: Path) -> None:
    """Each change is told once; an application that is being replaced is waited for."""
    api.answers = [
        (200, {"applications": {}}),
        _status("DEPLOYING", 0),
        _status("DEPLOYING", 0),
        _status("UNHEALTHY", 1),
        _status("RUNNING", 2),
    ]
    assert list(states(_cluster(api, tmp_path), "warmturn")) == [
        "engine 0/2",
        "engine 1/2",
        "engine 2/2",
    ]


def test_a_failure_is_told_by_its_exception(api: FakeServeApi, tmp_path: Path) -> None:
    """Of nested tracebacks the inner exception is shown, and where the logs are."""
    api.answers = [_status("DEPLOY_FAILED", 0, TRACEBACK)]
    with pytest.raises(DeployError) as error:
        list(states(_cluster(api, tmp_path), "warmturn"))
    assert str(error.value).startswith("OSError: We couldn't connect to the model hub")
    assert str(tmp_path) in str(error.value)


def test_what_an_engine_logged_comes_first(api: FakeServeApi, tmp_path: Path) -> None:
    """Serve only hears that an engine failed to start; the engine's log says why."""
    log = "(EngineCore pid=1) ERROR 11-29 [core.py:1] ValueError: No memory for the cache\n"
    (tmp_path / "worker-1.out").write_text("INFO fine\n" + log)
    api.answers = [_status("DEPLOY_FAILED", 0, TRACEBACK)]
    with pytest.raises(DeployError, match=r"^ValueError: No memory for the cache"):
        list(states(_cluster(api, tmp_path), "warmturn"))


def test_starting_serve_is_tried_again(api: FakeServeApi, tmp_path: Path) -> None:
    """A server error of the first call is tried again; what is refused is not."""
    api.answers = [(500, TRACEBACK), (200, {})]
    deploy(_cluster(api, tmp_path), {})
    api.answers = [(400, "bad: no such field"), (200, {})]
    with pytest.raises(DeployError, match=r"^bad: no such field"):
        deploy(_cluster(api, tmp_path), {})
    assert len(api.answers) == 1
