"""What is put into Grafana, through its HTTP API, so that doing it again changes nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from grafana_api.grafana_api import GrafanaClientError, GrafanaException, GrafanaServerError
from grafana_api.grafana_face import GrafanaFace
from requests import RequestException
from urllib3.exceptions import HTTPError

from dashboards.grafana_answer import (
    ForeignAnswer,
    checked,
    in_words,
    message,
    refuse_foreign_error,
)
from dashboards.grafana_json import DATA_SOURCE_UID, Json

FOLDER_UID, FOLDER_TITLE = "warmturn", "warmturn"
TIMEOUT_S = 10.0
KEPT_BY_GRAFANA = ("id", "version")
"""Fields of a stored dashboard that are Grafana's own."""

NOT_FOUND = 404
EXISTS = (409, 412)
"""How Grafana says that there is one already; which of them depends on its version."""


class PushError(Exception):
    """Something could not be put there; `str()` says what and why."""


class NoGrafana(PushError):
    """Nothing else can be put there either: no Grafana answers, or not to this token."""


@dataclass(frozen=True, slots=True)
class Grafana:
    """One Grafana, as its API knows it."""

    url: str
    api: Any

    @classmethod
    def at(cls, url: str, token: str) -> "Grafana":
        """Return the Grafana at a URL; the token is a service account's.

        Raises:
            NoGrafana: the URL or the token is none.
        """
        token = token.strip()  # files end with a newline
        if not (token and token.isascii() and token.isprintable()):
            # It cannot be sent, and who tries is told so in words that quote it.
            raise NoGrafana("the token is empty, or not printable ASCII")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        path = parts.path.strip("/")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise NoGrafana(f"{url} is no URL of the form http://host:port")
        face = GrafanaFace(
            token,
            host=parts.hostname,
            port=port,
            url_path_prefix=f"{path}/" if path else "",
            protocol=parts.scheme,
            timeout=TIMEOUT_S,
        )
        face.api.s.hooks["response"].append(refuse_foreign_error)
        return cls(url, face)

    def put_folder(self) -> str:
        """Create the folder unless it is there; return what was done, as all the others do.

        Raises:
            PushError: it cannot be created.
        """
        with self._told("the folder"):
            if self._found(lambda: self.api.folder.get_folder(FOLDER_UID), uid=FOLDER_UID):
                return "unchanged"
            try:
                created = self.api.folder.create_folder(FOLDER_TITLE, FOLDER_UID)
            except GrafanaClientError as error:
                if error.status_code not in EXISTS:
                    raise
                if not self._found(lambda: self.api.folder.get_folder(FOLDER_UID), uid=FOLDER_UID):
                    reason = f"another folder is called {FOLDER_TITLE}: rename or delete it"
                    raise PushError(f"the folder: {reason}") from error
                return "unchanged"
            checked(created, uid=FOLDER_UID)
            return "created"

    def put_data_source(self, prometheus_url: str) -> str:
        """Create the data source, or let it point to this Prometheus.

        Raises:
            PushError: it cannot be written.
        """
        path = f"/datasources/uid/{DATA_SOURCE_UID}"
        wanted = {
            "uid": DATA_SOURCE_UID,
            "name": DATA_SOURCE_UID,
            "type": "prometheus",
            "access": "proxy",
            "url": prometheus_url,
        }
        with self._told("the data source"):
            found = self._found(lambda: self.api.api.GET(path), uid=DATA_SOURCE_UID)
            if not found:
                checked(self.api.datasource.create_datasource(wanted), name=DATA_SOURCE_UID)
                return "created"
            if found | wanted == found:
                return "unchanged"
            checked(self.api.api.PUT(path, json=found | wanted), name=DATA_SOURCE_UID)
            return "updated"

    def put_dashboard(self, dashboard: Json) -> str:
        """Create or replace a dashboard, also one that somebody edited by hand.

        Raises:
            PushError: it cannot be written, or somebody writes it at the same time.
        """
        uid = dashboard["uid"]
        with self._told(f"dashboard {uid}"):
            found = self._found(lambda: self.api.dashboard.get_dashboard(uid))
            there = checked(found.get("dashboard"), uid=uid) if found else {}
            folder = checked(found.get("meta")).get("folderUid") if found else None
            if folder == FOLDER_UID and _same(there, dashboard):
                return "unchanged"
            kept = {name: there[name] for name in KEPT_BY_GRAFANA if name in there}
            sent = {
                "dashboard": dashboard | kept,
                "folderUid": FOLDER_UID,
                "overwrite": False,
                "message": "python -m dashboards.push",
            }
            checked(self.api.dashboard.update_dashboard(sent), status="success", uid=uid)
            return "updated" if found else "created"

    def _found(self, get: Callable[[], Any], **fields: Any) -> Json | None:
        try:
            return checked(get(), **fields)
        except GrafanaClientError as error:
            if error.status_code != NOT_FOUND:
                raise
            return None

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Say in words what went wrong."""
        try:
            yield
        except GrafanaServerError as error:
            raise PushError(f"{what}: Grafana fails: {message(error)}") from error
        except GrafanaException as error:
            match error.status_code:
                case 401:
                    raise NoGrafana(f"{self.url} refuses the token (401)") from error
                case 403:
                    reason = "the token may not do this (403): its role has to be Admin"
                case code:
                    reason = f"{message(error)} ({code})"
            raise PushError(f"{what}: {reason}") from error
        except ForeignAnswer as error:
            raise NoGrafana(f"what answers at {self.url} is no Grafana: {error}") from error
        except (RequestException, HTTPError) as error:
            raise NoGrafana(
                f"no Grafana answers at {self.url}: {in_words(error, TIMEOUT_S)}"
            ) from error


def _same(there: Json, wanted: Json) -> bool:
    """Whether a stored dashboard is the wanted one; Grafana may add fields of its own."""
    return all(there.get(name) == value for name, value in wanted.items())
