"""serve.yaml as a file: what Serve would pass over in silence is an error here."""

from pathlib import Path

import pytest

from serve_app import serve_file
from serve_app.serve_file import ServeFileError

ROOT = Path(__file__).parents[1]
GOOD = (ROOT / "serve.yaml").read_text()


def _load(text: str, directory: Path) -> None:
    file = directory / "serve.yaml"
    file.write_text(text)
    serve_file.load(file)


@pytest.mark.parametrize("name", ["serve.yaml", "serve.gpu.yaml"])
def test_the_projects_files_are_good(name: str) -> None:
    """What the project ships can be deployed, as far as Serve and warmturn know."""
    content = serve_file.load(ROOT / name)
    assert serve_file.app(content)["name"] == "warmturn"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("proxy_location", "proxy_locations", "proxy_locations: no such setting"),
        ("  port: 8000", "  prt: 8000", "http_options.prt: no such setting"),
        ("num_replicas: 2", "num_replica: 2", "applications.0.deployments.0.num_replica: no such"),
        (
            "num_cpus: 0.5",
            "num_cpu: 0.5",
            "ray_actor_options.num_cpu: no such setting; did you mean num_cpus?",
        ),
        ("stickiness_s", "sticky_s", "routing.sticky_s: no such setting"),
        ("max_park_s: 30", "max_park_s: -1", "routing: max_park_s: must not be below"),
        ("kv_pressure: 1", "pressure: 1", "routing: weights must name exactly"),
        ("router: warmturn", "router: best", "router: Input should be 'warmturn', 'power_of_two'"),
        ("max_ongoing_requests: 64", "max_ongoing_requests: many", "max_ongoing_requests: Input"),
        ("kv_offload_gib: 1", "kv_offload: 1", "kv_offload: no such setting"),
        ("serve_app.app:build", "other.app:build", "0 with import_path serve_app.app:build"),
        ("name: engine", "name: engin", "engin is none; there are engine and gateway"),
        ("deployments:", "deployments: [engine]\n    was:", "deployments.0: not a mapping"),
        ("max_park_s: 30", "max_park_s: .inf", "max_park_s: Input should be a finite number"),
        ("applications:", "applications: [", "serve.yaml"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    """Every misspelt key is named with its place in the file."""
    assert old in GOOD
    with pytest.raises(ServeFileError) as error:
        _load(GOOD.replace(old, new, 1), tmp_path)
    assert reason in str(error.value)


AUTOSCALING = """autoscaling_config:
          min_replicas: 1
          max_replicas: 8
          upscale_delay_s: 0
          downscale_delay_s: 0
          policy:
            policy_function: serve_app.autoscaler:CacheAutoscaler
            policy_kwargs: {target_hit_ratio: 0.9, calm_s: 60}
"""


def test_autoscaling_in_place_of_a_number_of_replicas(tmp_path: Path) -> None:
    """As the comment in serve.yaml has it."""
    _load(GOOD.replace("num_replicas: 2", AUTOSCALING, 1), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("target_hit_ratio", "target_hit", "target_hit: no such setting"),
        ("calm_s: 60", "calm_s: long", "calm_s: Input should be a valid number"),
        ("calm_s: 60", "max_replicas: 9", "max_replicas: belongs into autoscaling_config"),
        ("upscale_delay_s: 0", "upscale_delay_s: 30", "upscale_delay_s: must be 0"),
        ("downscale_delay_s: 0", "", "downscale_delay_s: must be 0"),
        ("calm_s: 60", "max_wait_s: 0", "max_wait_s: must be above 0"),
        ("min_replicas: 1", "upscaling_factor: 2", "upscaling_factor: leave it out"),
    ],
)
def test_autoscaling_that_is_refused(tmp_path: Path, old: str, new: str, reason: str) -> None:
    """Serve would find out only when it asks for the first time, or wait on top of our waiting."""
    with pytest.raises(ServeFileError) as error:
        _load(GOOD.replace("num_replicas: 2", AUTOSCALING.replace(old, new, 1), 1), tmp_path)
    assert reason in str(error.value)


@pytest.mark.parametrize("mark", [":", "."])
def test_autoscaling_needs_our_router(tmp_path: Path, mark: str) -> None:
    """Nobody else knows what is asked, and drains whoever is to go; Ray takes a dot as well."""
    named = AUTOSCALING.replace("autoscaler:", f"autoscaler{mark}")
    text = GOOD.replace("num_replicas: 2", named, 1)
    with pytest.raises(ServeFileError, match="needs router: warmturn"):
        _load(text.replace("router: warmturn", "router: power_of_two"), tmp_path)


@pytest.mark.parametrize("text", ["", "- 1", "just words", "a: b"])
def test_files_that_are_something_else(tmp_path: Path, text: str) -> None:
    """A file that is no configuration at all is refused, too."""
    with pytest.raises(ServeFileError):
        _load(text, tmp_path)


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    """It is named, as any that cannot be read."""
    path = tmp_path / "latin.yaml"
    path.write_bytes("applications: café".encode("latin-1"))
    with pytest.raises(ServeFileError, match=r"latin\.yaml"):
        serve_file.load(path)


def test_an_import_path_with_a_dot(tmp_path: Path) -> None:
    """Ray takes it for the same."""
    _load(GOOD.replace("serve_app.app:build", "serve_app.app.build"), tmp_path)


def test_a_missing_file() -> None:
    """A file that is not there is named."""
    with pytest.raises(ServeFileError, match=r"nowhere\.yaml"):
        serve_file.load(Path("nowhere.yaml"))
