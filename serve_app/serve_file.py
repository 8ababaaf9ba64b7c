"""Reads a serve.yaml and checks what Ray would pass over in silence."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import ServeDeploySchema

from serve_app.config import AppConfig, RouterName, UserConfig, autoscale_settings
from serve_app.suggestion import did_you_mean

IMPORT_PATH = "serve_app.app:build"
AUTOSCALER = "serve_app.autoscaler:CacheAutoscaler"
DEPLOYMENTS = ("engine", "gateway")


class ServeFileError(ValueError):
    """The file cannot be deployed; every line of the message names a setting."""


def load(path: Path) -> dict[str, Any]:
    """Return the file's content, in the form that the Serve REST API takes.

    Raises:
        ServeFileError: it is not readable, not YAML, not Serve's schema (a key that Serve does
            not know is an error here), or has no valid warmturn application.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ServeFileError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ServeFileError(f"{path}: not a mapping")
    if unknown := list(_unknown_keys(ServeDeploySchema, content)):
        raise ServeFileError("\n".join(f"{path}: {line}" for line in unknown))
    try:
        ServeDeploySchema.model_validate(content)
        app_config(content)
        _check_deployments(content)
        user_config(content)
        _check_autoscaling(content)
    except ValidationError as error:
        raise ServeFileError("\n".join(f"{path}: {line}" for line in lines(error))) from error
    return content


def app(content: dict[str, Any]) -> dict[str, Any]:
    """Return the warmturn application's part of the file.

    Raises:
        ServeFileError: there is none, or more than one.
    """
    ours = [one for one in content["applications"] if _is(one["import_path"], IMPORT_PATH)]
    if len(ours) != 1:
        raise ServeFileError(f"applications: {len(ours)} with import_path {IMPORT_PATH}, want one")
    found: dict[str, Any] = ours[0]
    return found


def deployment(content: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the options of one of the warmturn application's deployments; empty if it has none.

    Raises:
        ServeFileError: there is no such application, or more than one.
    """
    deployments = app(content).get("deployments", [])
    return next((one for one in deployments if one["name"] == name), {})


def app_config(content: dict[str, Any]) -> AppConfig:
    """Return the warmturn application's args, parsed.

    Raises:
        ServeFileError, ValidationError: as they say.
    """
    return AppConfig.model_validate(app(content).get("args", {}))


def user_config(content: dict[str, Any]) -> UserConfig:
    """Return the `user_config` of the gateway deployment, parsed.

    Raises:
        ServeFileError, ValidationError: as they say.
    """
    return UserConfig.model_validate(deployment(content, "gateway").get("user_config") or {})


def _check_autoscaling(content: dict[str, Any]) -> None:
    """Check what our autoscaling policy is given.

    Raises:
        ServeFileError, ValidationError: as they say.
    """
    config = deployment(content, "engine").get("autoscaling_config") or {}
    policy = config.get("policy") or {}
    if not _is(policy.get("policy_function"), AUTOSCALER):
        return
    if app_config(content).router is not RouterName.WARMTURN:
        raise ServeFileError(f"{AUTOSCALER}: needs router: warmturn, which sees the traffic")
    settings = policy.get("policy_kwargs") or {}
    if bounds := {"min_replicas", "max_replicas"} & settings.keys():
        raise ServeFileError(f"{min(bounds)}: belongs into autoscaling_config, not policy_kwargs")
    autoscale_settings(settings)
    for delay in ("upscale_delay_s", "downscale_delay_s"):
        if config.get(delay) != 0:
            raise ServeFileError(
                f"autoscaling_config.{delay}: must be 0, as {AUTOSCALER} waits itself: see calm_s"
            )
    for name in ("downscale_to_zero_delay_s", "upscaling_factor", "downscaling_factor"):
        if config.get(name):
            raise ServeFileError(f"autoscaling_config.{name}: leave it out with {AUTOSCALER}")


def _is(path: Any, ours: str) -> bool:
    """Tell whether that names what `ours` does: Ray takes a dot for the colon."""
    return str(path).replace(":", ".") == ours.replace(":", ".")


def _check_deployments(content: dict[str, Any]) -> None:
    """Check that options are of deployments that there are; ServeFileError if not."""
    for one in app(content).get("deployments", []):
        if one["name"] not in DEPLOYMENTS:
            names = " and ".join(DEPLOYMENTS)
            raise ServeFileError(f"deployments: {one['name']} is none; there are {names}")


def _unknown_keys(model: type[BaseModel], content: Any, prefix: str = "") -> Iterator[str]:
    """Yield a line on each key that the model does not declare, nested models included."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        field = model.model_fields.get(key)
        if field is None:
            yield f"{prefix}{key}: no such setting{did_you_mean(str(key), model.model_fields)}"
            continue
        for nested in _models_in(field.annotation):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    if not isinstance(item, dict):  # Ray's schema fails to say so
                        yield f"{prefix}{key}.{index}: not a mapping"
                    yield from _unknown_keys(nested, item, f"{prefix}{key}.{index}.")
            else:
                yield from _unknown_keys(nested, value, f"{prefix}{key}.")


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the pydantic models in an annotation such as list[M] or M | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (list, Union, types.UnionType):
        return [model for part in get_args(annotation) for model in _models_in(part)]
    return []


def lines(error: ValidationError) -> Iterator[str]:
    """Yield a line on each thing that is wrong, its place in front."""
    for one in error.errors():
        unknown = one["type"] in ("extra_forbidden", "unexpected_keyword_argument")
        place = ".".join(map(str, one["loc"])) or "args"
        reason = one["msg"].removeprefix("Value error, ")
        yield f"{place}: {'no such setting' if unknown else reason}"
