"""A Ray cluster of this machine alone, driven through the Serve REST API as any other."""

import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import ray

OBJECT_STORE_BYTES = 512 * 2**20
POLL_S = 1.0
DEPLOY_TRIES = 3
DEPLOY_TIMEOUT_S = 120.0
REMINDER_S = 30.0
"""How often progress is told again while nothing changes."""


ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Serve's proxies: see runtime_env in serve.yaml.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": "268435456",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
}
"""What Ray's processes are told unless the environment says otherwise."""

EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception): (?!Traceback)")
"""How the last line of a traceback begins, unless it quotes another one."""

ROOT_CAUSE = re.compile(r"ERROR .*\b(\w*(?:Error|Exception): .+)")
"""A line of vLLM's log that ends with an exception and what it says."""


class DeployError(RuntimeError):
    """Serve could not bring the application up; the message is Serve's, or the engine's."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """Where a running cluster is reached, and where its processes write their logs."""

    dashboard_url: str
    log_directory: Path


@contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """Start Ray and end every process of it on the way out."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    context: Any = ray.init(
        address="local",
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    try:
        logs = Path(context.address_info["session_dir"], "logs")
        yield LocalCluster(f"http://{context.dashboard_url}", logs)
    finally:
        ray.shutdown()


def deploy(cluster: LocalCluster, content: dict[str, Any]) -> None:
    """Put a serve.yaml's content to the Serve REST API.

    The first call also starts Serve, which on a busy machine can take more than one try.

    Raises:
        DeployError: Serve refuses it.
    """
    for _ in range(DEPLOY_TRIES):
        response = httpx.put(_applications_url(cluster), json=content, timeout=DEPLOY_TIMEOUT_S)
        if response.is_success:
            return
        if response.is_client_error:
            break
        time.sleep(POLL_S)
    raise DeployError(_exception(response.text))


def states(cluster: LocalCluster, app: str) -> Iterator[str]:
    """Yield the application's progress in words until it runs, each change and each REMINDER_S.

    Raises:
        DeployError: it cannot run; the message says why.
    """
    shown, shown_at_s = "", 0.0
    while True:
        response = httpx.get(_applications_url(cluster), timeout=60)
        details = response.raise_for_status().json()["applications"].get(app, {})
        status = details.get("status", "NOT_STARTED")
        if status == "DEPLOY_FAILED":
            messages = [one["message"] for one in details["deployments"].values()]
            reason = _root_cause(cluster.log_directory) or _exception(details["message"], *messages)
            raise DeployError(f"{reason}\nlogs: {cluster.log_directory}")
        progress = ", ".join(map(_progress, details.get("deployments", {}).values()))
        now_s = time.monotonic()
        if progress and (progress != shown or now_s > shown_at_s + REMINDER_S):
            yield progress
            shown, shown_at_s = progress, now_s
        if status == "RUNNING":
            return
        time.sleep(POLL_S)


def _applications_url(cluster: LocalCluster) -> str:
    return f"{cluster.dashboard_url}/api/serve/applications/"


def _progress(deployment: dict[str, Any]) -> str:
    running = sum(replica["state"] == "RUNNING" for replica in deployment["replicas"])
    return f"{deployment['name']} {running}/{deployment['target_num_replicas']}"


def _root_cause(log_directory: Path) -> str | None:
    """Return the first exception that an engine logged; Serve only hears that it failed."""
    for log in log_directory.glob("worker-*.out"):
        if match := ROOT_CAUSE.search(log.read_text(errors="replace")):
            return match[1]
    return None


def _exception(*texts: str) -> str:
    """Return the last exception that tracebacks name, else the last line that says something."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    named = [line for line in lines if EXCEPTION.match(line)]
    return (named or lines or ["no reason given"])[-1]
