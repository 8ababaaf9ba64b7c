"""cluster.yaml against Ray's own schema and against what a node of this project needs.

Ray's check has two steps: `prepare_config` merges the provider's defaults and the shared
setup commands, `validate_config` then applies the schema; without the first step the
second refuses any file.
"""

import copy
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[1]
Config = dict[str, Any]


@pytest.fixture
def config() -> Config:
    loaded: Config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    return loaded


@pytest.fixture
def prepared(config: Config) -> Config:
    with_defaults: Config = prepare_config(copy.deepcopy(config))
    return with_defaults


def setup_commands(prepared: Config, node_type: str) -> list[str]:
    """The commands that Ray runs to set up a node: a type's own list replaces the shared one."""
    kind = "head" if node_type == prepared["head_node_type"] else "worker"
    shared: list[str] = prepared[f"{kind}_setup_commands"]
    node = prepared["available_node_types"][node_type]
    return node.get("worker_setup_commands") or shared


def start_commands(prepared: Config) -> list[str]:
    """The `ray start` of the head, then that of the workers."""
    kinds = ("head_start_ray_commands", "worker_start_ray_commands")
    return [c for kind in kinds for c in prepared[kind] if "ray start" in c]


def test_ray_accepts_the_file(prepared: Config) -> None:
    """Ray's schema check passes, as the first thing that `ray up` does."""
    validate_config(prepared)


@pytest.mark.parametrize("path", [(), ("auth",), ("available_node_types", "gpu")])
def test_ray_refuses_an_unknown_field(config: Config, path: tuple[str, ...]) -> None:
    """A misspelt setting fails the schema check, so the check above can fail."""
    section = config
    for key in path:
        section = section[key]
    section["idle_timeout_minuets"] = 1
    with pytest.raises(Exception, match="idle_timeout_minuets"):
        validate_config(prepare_config(config))


def test_only_workers_have_gpus(prepared: Config) -> None:
    """The head has no GPU and is never a worker; every other type has GPUs and may be launched."""
    types = dict(prepared["available_node_types"])
    head = types.pop(prepared["head_node_type"])
    assert head["resources"].get("GPU", 0) == 0
    assert head["max_workers"] == 0
    assert types
    for node in types.values():
        assert node["resources"]["GPU"] > 0
        assert 0 < node["max_workers"] <= prepared["max_workers"]


def test_every_node_type_installs_the_project(prepared: Config) -> None:
    """Each type installs the pinned GPU list, then the project, where it was copied to."""
    [folder] = [to for to, local in prepared["file_mounts"].items() if local == "."]
    for node_type in prepared["available_node_types"]:
        [install] = [c for c in setup_commands(prepared, node_type) if "--no-deps" in c]
        change_folder, install_list, install_project = install.split(" && ")
        assert change_folder == f"cd {folder}"
        assert install_list.endswith(" --no-deps -r requirements/gpu.txt")
        assert " --no-deps " in install_project
        assert install_project.endswith(" .")


def test_named_requirement_files_exist(prepared: Config) -> None:
    """Every requirements file that a setup command names is in the repository."""
    for node_type in prepared["available_node_types"]:
        commands = " ".join(setup_commands(prepared, node_type))
        named = re.findall(r"\brequirements/[\w./-]+", commands)
        assert "requirements/gpu.txt" in named
        assert all((ROOT / name).is_file() for name in named), named


def test_ray_starts_with_token_authentication(prepared: Config) -> None:
    """Every node asks for the token, and its file is copied to where Ray looks for it."""
    commands = start_commands(prepared)
    assert len(commands) == 2
    for command in commands:
        assert command.startswith("export RAY_AUTH_MODE=token ")
    assert prepared["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_proxies_take_the_same_way_as_replicas(prepared: Config) -> None:
    """Serve's proxies get the flags that the application's processes get."""
    application = yaml.safe_load((ROOT / "serve.gpu.yaml").read_text())["applications"][0]
    flags = application["runtime_env"]["env_vars"].items()
    wanted = [f"{name}={value}" for name, value in flags if name.startswith("RAY_SERVE_")]
    assert len(wanted) == 4
    for command in start_commands(prepared):
        assert all(flag in command for flag in wanted)


def test_dashboard_stays_on_the_head(prepared: Config) -> None:
    """The dashboard binds to loopback, so only an ssh tunnel reaches it."""
    [head] = [command for command in start_commands(prepared) if "--head" in command]
    assert re.findall(r"--dashboard-host=(\S+)", head) == ["127.0.0.1"]
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in head


def test_all_nodes_export_metrics_on_one_port(prepared: Config) -> None:
    """Prometheus can scrape every node at the same fixed port."""
    option = re.compile(r"--metrics-export-port=(\d+)")
    head, worker = (option.findall(command) for command in start_commands(prepared))
    assert len(head) == 1
    assert head == worker


def test_commands_are_valid_shell(prepared: Config) -> None:
    """bash can parse every command, so YAML folding or quoting did not break one."""
    for key in (key for key in prepared if key.endswith("_commands")):
        for command in prepared[key]:
            subprocess.run(["bash", "-n", "-c", command], check=True)
