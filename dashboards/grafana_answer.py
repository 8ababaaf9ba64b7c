"""What came back from where Grafana should be, and how that is told."""

from typing import Any

from grafana_api.grafana_api import GrafanaException
from requests import JSONDecodeError, RequestException, Timeout
from urllib3.exceptions import HTTPError

from dashboards.grafana_json import Json


class ForeignAnswer(Exception):
    """It is none of Grafana's."""


def refuse_foreign_error(response: Any, **_: Any) -> None:
    """Let errors pass that have a message; on others the library may fail with one of its own."""
    if response.ok:
        return
    try:
        told = response.json()
    except JSONDecodeError:
        told = None
    if not isinstance(told, dict) or "message" not in told:
        raise ForeignAnswer(f"its error {response.status_code} has no message")


def checked(answer: Any, **fields: Any) -> Json:
    """Return an answer that has these fields, as Grafana's documented one has them."""
    if not isinstance(answer, dict) or answer | fields != answer:
        raise ForeignAnswer("it does not answer as Grafana's API does")
    return answer


def message(error: GrafanaException) -> str:
    """Return what Grafana says itself, in words."""
    return str(error.response["message"])


def in_words(error: RequestException | HTTPError, timeout_s: float) -> str:
    """Return why no answer came, where each was waited for so long."""
    match error:
        case Timeout():
            return f"nothing came in {timeout_s:g} s"
        case JSONDecodeError():
            return "what answers there speaks no JSON"
    return str(error).rsplit(": ", 1)[-1].rstrip("'\")")
