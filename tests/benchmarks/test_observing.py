"""What is compared, where watching a service is weighed."""

from pathlib import Path

from benchmarks.observing import PLAIN, WATCHED, both_services, watching
from serve_app.config import AppConfig


def test_the_services_differ_in_what_watches_alone() -> None:
    """Each is one that warmturn serves, below a path of its own."""
    settings = watching("http://127.0.0.1:4317", Path("/tmp"))
    plain, watched = both_services(8000, settings)["applications"]
    assert (plain["name"], watched["name"]) == (PLAIN, WATCHED)
    assert plain["route_prefix"] != watched["route_prefix"]
    assert plain["args"] | settings == watched["args"]
    assert plain["args"] != watched["args"]
    assert plain["deployments"] == watched["deployments"]
    for one in (plain, watched):
        assert AppConfig.model_validate(one["args"])
