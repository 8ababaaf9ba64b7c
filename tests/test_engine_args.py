"""Engine settings through vLLM's own parser."""

from pathlib import Path
from typing import Any

import pytest

from serve_app import engine_args, serve_file
from serve_app.engine_args import NOT_IN_A_REPLICA, EngineArgsError

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["serve.yaml", "serve.gpu.yaml"])
def test_the_projects_files_are_good(name: str) -> None:
    """What the project ships is accepted by vLLM."""
    config = serve_file.app_config(serve_file.load(ROOT / name))
    args = engine_args.parse(config.engine_settings())
    assert args.model == config.model
    assert args.enable_prefix_caching is True


@pytest.mark.parametrize(
    ("settings", "parsed"),
    [
        ({"max_model_len": "32k"}, {"max_model_len": 32000}),
        ({"enforce-eager": False}, {"enforce_eager": False}),
        ({"enforce_eager": True}, {"enforce_eager": True}),
        ({"disable_fastapi_docs": False}, {"disable_fastapi_docs": False}),
        ({"disable_fastapi_docs": True}, {"disable_fastapi_docs": True}),
        ({"api_key": ["one", "two"]}, {"api_key": ["one", "two"]}),
        ({"served_model_name": ["a", "b"]}, {"served_model_name": ["a", "b"]}),
        ({"middleware": ["a.b", "c.d"]}, {"middleware": ["a.b", "c.d"]}),
        ({"allowed_origins": ["*"]}, {"allowed_origins": ["*"]}),
        ({"seed": None}, {"seed": 0}),
        (
            {"speculative_config": {"model": "draft", "num_speculative_tokens": 3}},
            {"speculative_config": {"model": "draft", "num_speculative_tokens": 3}},
        ),
        ({"distributed_executor_backend": "ray"}, {"distributed_executor_backend": "ray"}),
    ],
)
def test_yaml_values_reach_vllm(settings: dict[str, Any], parsed: dict[str, Any]) -> None:
    """Switches, lists, mappings, units and nulls mean what they do on vLLM's command line."""
    args = engine_args.parse(settings)
    assert {name: getattr(args, name) for name in parsed} == parsed


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_modl_len": 3}, "engine.max_modl_len is not a vLLM setting; did you mean max_model_"),
        ({"max_model": 3}, "engine.max_model is not a vLLM setting"),
        ({"model_tag": "x"}, "engine.model_tag is not a vLLM setting"),
        ({"max_model_len": "long"}, "--max-model-len: invalid"),
        ({"max_num_seqs": [1, 2]}, "--max-num-seqs: invalid int value"),
        ({"dtype": "float8"}, "--dtype: invalid choice"),
        ({"block_size": True}, "--block-size: expected one argument"),
        ({"enforce_eager": "yes"}, "--enforce-eager"),
        ({"compilation_config": {"levl": 1}}, "levl"),
        ({"enable_auto_tool_choice": True}, "--enable-auto-tool-choice requires"),
        (
            {"enable_auto_tool_choice": True, "tool_call_parser": "nope"},
            "invalid tool call parser: nope",
        ),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], reason: str) -> None:
    """Unknown keys, abbreviations and values that do not fit are errors that name the key."""
    with pytest.raises(EngineArgsError) as error:
        engine_args.parse(settings)
    assert reason in str(error.value)


@pytest.mark.parametrize("key", NOT_IN_A_REPLICA)
def test_settings_without_effect_are_refused(key: str) -> None:
    """What a replica would ignore is an error that says where to set it; each is vLLM's."""
    with pytest.raises(EngineArgsError, match=f"engine.{key} has no effect in a replica"):
        engine_args.parse({key: "1"})
    assert hasattr(engine_args.parse({}), key)


@pytest.mark.parametrize("key", ["data_parallel_size", "data_parallel_rank"])
def test_several_engines_in_a_replica_are_refused(key: str) -> None:
    """vLLM would not start with them, as the router follows one alone."""
    assert hasattr(engine_args.parse({}), key)
    with pytest.raises(EngineArgsError, match=f"engine.{key}: a replica has one engine"):
        engine_args.parse({key: 2})
