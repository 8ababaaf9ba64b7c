"""The args of serve.yaml."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from serve_app import serve_file
from serve_app.config import AppConfig, GatewayConfig, RecordConfig

ROOT = Path(__file__).parents[1]
SHARED = {"type": "fs", "path": "kv", "gib": 1}


def _config(**args: Any) -> AppConfig:
    return AppConfig.model_validate({"model": "m"} | args)


def test_prefix_caching_is_on_unless_said_otherwise() -> None:
    """warmturn's own defaults yield to serve.yaml, whichever way its keys are written."""
    assert _config().engine_settings()["enable_prefix_caching"] is True
    off = _config(engine={"enable-prefix-caching": False, "block-size": 16}).engine_settings()
    assert off["enable_prefix_caching"] is False
    assert off["block_size"] == 16


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"kv_offload_gig": 1}, "Extra inputs are not permitted"),
        ({"kv_offload_gib": -1}, "greater than or equal to 0"),
        ({"kv_offload_gib": "much"}, "valid number"),
        ({"gateway": {"max_body_mb": 3}}, "Extra inputs are not permitted"),
        ({"gateway": {"max_attempts": 0}}, "greater than or equal to 1"),
        ({"gateway": {"volatile_lines": ["x", "now: ("]}}, r"volatile_lines\.1(.|\n)*'now: \('"),
        ({"engine": ["max_model_len"]}, "valid dictionary"),
        ({"engine": {"model": "x"}}, "set the model as args.model"),
        ({"kv_offload_gib": 1, "engine": {"kv-transfer-config": {}}}, "exclude each other"),
        ({"model": ""}, "at least 1 character"),
        ({"otlp_traces_endpoint": "collector:4317"}, "pattern"),
        ({"kv_shared": SHARED}, "kv_shared needs kv_offload_gib above 0"),
        ({"kv_offload_gib": 1, "kv_shared": SHARED | {"gib": 0}}, "greater than 0"),
        ({"kv_offload_gib": 1, "kv_shared": {"type": "fs", "path": "kv"}}, "gib(.|\n)*required"),
        ({"kv_offload_gib": 1, "kv_shared": SHARED | {"gb": 1}}, "Extra inputs"),
        ({"kv_offload_gib": 1, "kv_shared": {"type": "tape"}}, "'fs', 'obj', 'p2p'"),
        ({"record": {"path": "turns", "max_gib": 0}}, "greater than 0"),
        ({"record": {"max_gib": 1}}, r"record\.path"),
        ({"record": "turns", "router": "round_robin"}, "record needs router: warmturn"),
        ({"record_prompts": True}, "record_prompts needs record"),
    ],
)
def test_bad_args_are_refused(args: dict[str, Any], reason: str) -> None:
    """What is misspelt, out of range or contradictory is an error with its reason."""
    with pytest.raises(ValidationError, match=reason):
        _config(**args)


def test_a_path_alone_says_where_to_record() -> None:
    """All else is as without; nothing of what was said is in it."""
    config = _config(record="turns.jsonl")
    assert config.record == RecordConfig(path=Path("turns.jsonl"), max_gib=4)
    assert not config.record_prompts


def test_clients_see_the_name_of_the_model(tmp_path: Path) -> None:
    """A directory is served under its last part, a hub name as it is, unless named otherwise."""
    directory = tmp_path / "some-model"
    directory.mkdir()
    assert _config(model=str(directory)).engine_settings()["served_model_name"] == "some-model"
    assert _config(model="org/name").engine_settings()["served_model_name"] == "org/name"
    named = _config(model="org/name", engine={"served_model_name": "short"}).engine_settings()
    assert named["served_model_name"] == "short"


def test_one_setting_turns_traces_on_everywhere() -> None:
    """The engine has the gateway's endpoint unless it is given another; the default is none."""
    key, endpoint = "otlp_traces_endpoint", "http://collector:4317"
    assert _config().engine_settings()[key] is None
    assert _config(**{key: endpoint}).engine_settings()[key] == endpoint
    other = {"otlp-traces-endpoint": "http://other:4317"}
    assert _config(**{key: endpoint}, engine=other).engine_settings()[key] == "http://other:4317"


def test_serve_yaml_shows_every_default() -> None:
    """Each of the gateway's settings stands in serve.yaml with the value it has without it."""
    args = serve_file.app(serve_file.load(ROOT / "serve.yaml"))["args"]
    assert args["gateway"] == GatewayConfig().model_dump(mode="json")
    assert args.keys() == AppConfig.model_fields.keys()
