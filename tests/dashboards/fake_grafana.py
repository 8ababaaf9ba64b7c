"""A server that behaves as Grafana's HTTP API is documented to, as far as it is used here."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = tuple[int, Any]
"""Status and body: a text as it is, anything else as JSON."""

TOKEN = "glsa_right"


class FakeGrafana:
    """What one Grafana holds; a test may change it as another user would.

    `before_save` is called once, just before a dashboard is saved. `fails` makes it answer
    everything with that status, `folder_conflict` is what it says of a folder that is there.
    `foreign` has answers of another server's in place of its own, by method and path; of `"*"`
    those to everything else.
    """

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, Any]] = {}
        self.data_sources: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.folder_of: dict[str, str] = {}
        self.before_save: Any = None
        self.fails: int | None = None
        self.role = "Admin"
        self.folder_conflict = 409
        self.foreign: dict[str, Answer] = {}
        self.writes: list[str] = []
        self.url = ""

    def answer(self, method: str, path: str, token: str | None, body: Any) -> Answer:
        """Return status and body."""
        if foreign := self.foreign.get(f"{method} {path}", self.foreign.get("*")):
            return foreign
        if self.fails:
            return self.fails, {"message": "database is locked"}
        if token != TOKEN:
            return 401, {"message": "Invalid API key"}
        if method != "GET":
            if self.role != "Admin":
                return 403, {"message": "You'll need additional permissions to perform this action"}
            self.writes.append(f"{method} {path}")
        match method, path.removeprefix("/api").split("/")[1:]:
            case "GET", ["folders", uid]:
                return _get(self.folders, uid, "folder not found")
            case "POST", ["folders"]:
                return self._create_folder(body)
            case "GET", ["datasources", "uid", uid]:
                return _get(self.data_sources, uid, "Data source not found")
            case "POST", ["datasources"]:
                if any(one["name"] == body["name"] for one in self.data_sources.values()):
                    return 409, {"message": "data source with the same name already exists"}
                self.data_sources[body["uid"]] = {"id": 1, "version": 1, "isDefault": False} | body
                return 200, {"message": "Datasource added", "name": body["name"]}
            case "PUT", ["datasources", "uid", uid]:
                self.data_sources[uid] = body | {"version": body["version"] + 1}
                return 200, {"message": "Datasource updated", "name": body["name"]}
            case "GET", ["dashboards", "uid", uid]:
                status, found = _get(self.dashboards, uid, "Dashboard not found")
                if status != 200:
                    return status, found
                return 200, {"dashboard": found, "meta": {"folderUid": self.folder_of[uid]}}
            case "POST", ["dashboards", "db"]:
                return self._save(body)
        return 404, {"message": "Not found"}

    def _create_folder(self, body: dict[str, Any]) -> Answer:
        same = [one for one in self.folders.values() if one["title"] == body["title"]]
        if body["uid"] in self.folders or same:
            return self.folder_conflict, {
                "message": "a folder with the same name already exists in this location"
            }
        self.folders[body["uid"]] = body | {"id": 7, "version": 1}
        return 200, self.folders[body["uid"]]

    def _save(self, body: dict[str, Any]) -> Answer:
        if self.before_save:
            self.before_save, act = None, self.before_save
            act()
        wanted, uid = body["dashboard"], body["dashboard"]["uid"]
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        there = self.dashboards.get(uid)
        if there and not body["overwrite"] and there["version"] != wanted.get("version"):
            reason = "The dashboard has been changed by someone else"
            return 412, {"message": reason, "status": "version-mismatch"}
        for other, one in self.dashboards.items():
            if other != uid and one["title"] == wanted["title"]:
                reason = "A dashboard with the same name in the folder already exists"
                return 412, {"message": reason, "status": "name-exists"}
        version = there["version"] + 1 if there else 1
        self.dashboards[uid] = wanted | {"id": len(uid), "version": version}
        self.folder_of[uid] = body["folderUid"]
        return 200, {"status": "success", "uid": uid, "version": version}


def _get(all_: dict[str, dict[str, Any]], uid: str, missing: str) -> Answer:
    return (200, all_[uid]) if uid in all_ else (404, {"message": missing})


@contextmanager
def running_grafana(prefix: str = "") -> Iterator[FakeGrafana]:
    """Serve one on a free port, under a path."""
    grafana = FakeGrafana()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size)) if size else None
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            path = self.path.removeprefix(prefix)
            status, answer = grafana.answer(self.command, path, token, body)
            content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _handle  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        grafana.url = f"http://127.0.0.1:{server.server_port}{prefix}"
        yield grafana
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
