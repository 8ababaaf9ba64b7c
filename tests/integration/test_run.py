"""`make run`'s command from start to interrupt."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from benchmarks.live_service import free_port
from tests.integration.conftest import ROOT, configure

RUN = [sys.executable, "-u", "-m", "serve_app.run"]


def test_it_serves_until_interrupted_and_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    """It shows each step and a conversation of two turns, serves, and ends every process."""
    port = free_port()
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(configure(tiny, 8000, {}, replicas=1)))
    command = [*RUN, "--config", str(file), "--port", str(port)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert run.stdout is not None
    lines: list[str] = []
    for line in run.stdout:
        lines.append(line)
        if "until interrupted" in line:
            break
    shown = "".join(lines)
    steps = ("settings", "model", "ray", "replicas", "ready", "serving")
    assert [shown.find(step) for step in steps] == sorted(shown.find(step) for step in steps)
    assert shown.count("prompt tokens") == 2
    assert " 0 of them cached" in shown
    assert httpx.get(f"http://127.0.0.1:{port}/ready").status_code == 200

    family = psutil.Process(run.pid).children(recursive=True)
    assert len(family) > 5
    run.send_signal(signal.SIGINT)
    rest, _ = run.communicate(timeout=30)
    assert "everything is stopped" in rest
    assert run.returncode == 0
    _gone, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--model", "/nowhere/model"], "no model directory /nowhere/model"),
        (["--model", "models/typo"], "no model directory models/typo"),
        (["--port", "80999"], "Invalid value for '--port'"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_bad_options_fail_at_once(options: list[str], reason: str) -> None:
    """What cannot work is said before Ray starts, without a traceback."""
    run = subprocess.run([*RUN, *options], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 2
    assert reason in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_a_taken_port_is_named() -> None:
    """A port that another server holds is said before Ray starts."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = subprocess.run([*RUN, "--port", port], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in run.stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("        enforce_eager: true", "engine.enforce_eagerly is not a vLLM setting"),
        ("      kv_offload_gib: 1", "kv_offload_gig: no such setting"),
        ("        num_replicas: 2", "deployments.0.num_replica: no such setting"),
        ("  port: 8000", "http_options.prt: no such setting"),
    ],
)
def test_a_bad_setting_fails_at_once(tmp_path: Path, line: str, reason: str) -> None:
    """A misspelt key of vLLM's, ours or Serve's is named before anything starts."""
    text = (ROOT / "serve.yaml").read_text()
    assert line in text
    word = line.split(":")[0].strip()
    wrong = reason.split()[0].rstrip(":").split(".")[-1]
    file = tmp_path / "serve.yaml"
    file.write_text(text.replace(line, line.replace(word, wrong), 1))
    run = subprocess.run([*RUN, "--config", file], capture_output=True, text=True)
    assert run.returncode == 2
    assert reason in run.stdout
    assert "Traceback" not in run.stdout + run.stderr
    assert "starting" not in run.stdout
