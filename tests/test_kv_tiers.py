"""serve.yaml's tiers of KV, as vLLM is told of them."""

import argparse
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from vllm.config import ParallelConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from serve_app import engine_args, kv_tiers
from serve_app.check import check
from serve_app.config import AppConfig
from serve_app.engine_args import EngineArgsError
from serve_app.kv_settings import NOT_IN_KV
from serve_app.kv_tiers import check_workers, place_kv

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "torch_dtype": "float32",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory that looks like a model's."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(LLAMA))
    (directory / "model.safetensors").write_bytes(bytes(100))
    return directory


def placed(model: Path, engine: dict[str, Any] | None = None, **more: Any) -> argparse.Namespace:
    """Return what vLLM is told with these settings."""
    settings = {"model": str(model), "engine": engine or {}, "kv_offload_gib": 0.001} | more
    config = AppConfig.model_validate(settings)
    args = engine_args.parse(config.engine_settings())
    place_kv(args, config)
    return args


def shared(path: str = "kv") -> dict[str, Any]:
    """Return a shared tier's settings."""
    return {"type": "fs", "path": path, "gib": 2}


def identity(model: Path, engine: dict[str, Any] | None = None) -> str:
    """Return what tells the model from others."""
    extra = placed(model, engine, kv_shared=shared()).kv_transfer_config.kv_connector_extra_config
    found: str = extra["secondary_tiers"][0]["model_identity"]
    return found


def test_the_tier_is_below_cpu_memory(model: Path) -> None:
    """The directory is named in full, its bound in bytes; without it there's CPU memory alone."""
    extra = placed(model, kv_shared=shared()).kv_transfer_config.kv_connector_extra_config
    (tier,) = extra["secondary_tiers"]
    assert extra["spec_name"] == "HostTieringSpec"
    assert tier["path"] == str(Path.cwd() / "kv")
    assert tier["max_bytes"] == 2 * 2**30
    extra = placed(model).kv_transfer_config.kv_connector_extra_config
    assert extra["spec_name"] == "HostOffloadingSpec"
    assert "secondary_tiers" not in extra
    assert placed(model, kv_offload_gib=0).kv_transfer_config is None


def test_on_cuda_the_tiers_are_vllms(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own spec with our directory, or with a tier of its own whose options are passed on."""
    on_cpu = placed(model, kv_shared=shared())
    monkeypatch.setattr(kv_tiers, "current_platform", SimpleNamespace(is_cpu=lambda: False))
    extra = placed(model, kv_shared=shared()).kv_transfer_config.kv_connector_extra_config
    assert extra["spec_name"] == "NamelessTieringSpec"
    tiers = on_cpu.kv_transfer_config.kv_connector_extra_config["secondary_tiers"]
    assert extra["secondary_tiers"] == tiers
    peers = {"type": "p2p", "host": "10.0.0.1"}
    extra = placed(model, kv_shared=peers).kv_transfer_config.kv_connector_extra_config
    assert extra["secondary_tiers"] == [peers]
    assert placed(model).kv_offloading_size == 0.001


def test_models_are_told_apart_by_their_files_and_settings(model: Path) -> None:
    """Other weights, of whatever the same size, or another configuration are another model."""
    first = identity(model)
    assert identity(model) == first
    weights = model / "model.safetensors"
    before = weights.stat()
    weights.write_bytes(bytes([1]) * 100)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    second = identity(model)
    assert second != first
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    (model / "config.json").write_text(json.dumps(LLAMA | {"rope_theta": 1e6}))
    third = identity(model)
    others = [{"prefix_caching_hash_algo": "sha256_cbor"}, {"dtype": "float32"}]
    found = [identity(model, other) for other in others]
    assert len({first, second, third, *found}) == 5


def test_settings_that_change_kv_tell_models_apart(model: Path) -> None:
    """Any setting does, by either spelling, unless it is known to leave KV as it is."""
    plain = identity(model)
    others: list[dict[str, Any]] = [
        {"load_format": "dummy"},
        {"model_loader_extra_config": {"a": 1}},
        {"attention_backend": "TRITON_ATTN"},
        {"cpu_offload_gb": 1},
    ]
    found = [identity(model, other) for other in others]
    assert len({plain, *found}) == 5
    assert identity(model, {"load-format": "dummy"}) == found[0]
    assert identity(model, {"max-num-seqs": 3, "enforce_eager": True, "api_key": ["k"]}) == plain


def test_settings_said_to_leave_kv_alone_are_vllms() -> None:
    """None is misspelt or gone."""
    parser = FlexibleArgumentParser()  # type: ignore[no-untyped-call]
    options = make_arg_parser(parser)._option_string_actions
    assert {f"--{key.replace('_', '-')}" for key in NOT_IN_KV} <= options.keys()


def test_weights_in_an_object_store_are_refused(model: Path) -> None:
    """Nothing here would tell one version of them from the next."""
    settings = {"model": str(model), "kv_offload_gib": 0.001, "kv_shared": shared()}
    config = AppConfig.model_validate(settings)
    args = engine_args.parse(config.engine_settings())
    args.model_weights = "s3://bucket/model"  # as vLLM sets it for such a model
    with pytest.raises(EngineArgsError, match="kv_shared: s3://bucket/model: weights in an obj"):
        place_kv(args, config)


def test_a_copy_of_a_model_is_the_same_model(model: Path) -> None:
    """A copy of a directory at the same path on another node, with its times."""
    first = identity(model)
    copy = model.with_name("copy")
    shutil.copytree(model, copy)
    shutil.rmtree(model)
    copy.rename(model)
    assert identity(model) == first


@pytest.mark.parametrize(
    ("engine", "tier", "reason"),
    [
        ({}, {"type": "obj", "bucket": "b"}, "kv_shared.type obj: vLLM has this tier for acc"),
        ({"distributed_executor_backend": "ray"}, shared(), "must be on one node"),
        ({"prefix_caching_hash_algo": "xxhash"}, shared(), "xxhash can give two prompts one hash"),
    ],
)
def test_what_cannot_work_is_refused(
    model: Path, engine: dict[str, Any], tier: dict[str, Any], reason: str
) -> None:
    """Tiers that the CPU build lacks, replicas over several nodes, and weak hashes."""
    with pytest.raises(EngineArgsError, match=reason):
        placed(model, engine, kv_shared=tier)


@pytest.mark.parametrize(
    ("settings", "tier", "reason"),
    [
        ({}, {"type": "obj", "bucket": "b"}, "kv_shared.type obj: vLLM has this tier for acc"),
        ({"engine": {"nnodes": 2}}, shared(), "must be on one node"),
        ({"engine": {"prefix_caching_hash_algo": "xxhash"}}, shared(), "one hash"),
        ({"model": "s3://bucket/model"}, shared(), "weights in an object store"),
        ({}, shared(), None),
        ({"kv_offload_gib": 0}, None, None),
    ],
)
def test_a_file_is_checked_for_what_deployment_refuses(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, Any],
    tier: dict[str, Any] | None,
    reason: str | None,
) -> None:
    """`serve_app.check` says so without a cluster."""
    args = {"model": str(model), "kv_offload_gib": 0.001, "kv_shared": tier} | settings
    application = {"name": "warmturn", "import_path": "serve_app.app:build", "args": args}
    path = tmp_path / "serve.yaml"
    path.write_text(json.dumps({"applications": [application]}))
    if reason is None:
        check(path)
        return
    with pytest.raises(typer.Exit):
        check(path)
    assert reason in capsys.readouterr().err


def test_workers_that_ray_placed_are_refused() -> None:
    """Even if nobody asked for Ray: vLLM takes it within a placement group."""
    config = AppConfig.model_validate({"model": "m", "kv_offload_gib": 1, "kv_shared": shared()})
    check_workers(config, ParallelConfig(distributed_executor_backend="mp"))
    parallel = ParallelConfig()
    parallel.distributed_executor_backend = "ray"
    with pytest.raises(EngineArgsError, match="must be on one node"):
        check_workers(config, parallel)


def test_the_bound_is_that_of_the_tier_in_force(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What scaling is told is 0 where there is no shared tier, or it had to be left out."""

    def bound(**more: Any) -> float:
        config = AppConfig.model_validate({"model": str(model), "kv_offload_gib": 0.001} | more)
        return place_kv(engine_args.parse(config.engine_settings()), config)

    assert bound(kv_shared=shared()) == 2
    assert bound() == bound(kv_offload_gib=0) == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20 - 1))
    assert bound(kv_shared=shared()) == 0


def test_little_shared_memory_turns_the_tier_off(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container with a small /dev/shm serves all the same."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20 - 1))
    extra = placed(model, kv_shared=shared()).kv_transfer_config.kv_connector_extra_config
    assert extra["spec_name"] == "HostOffloadingSpec"
