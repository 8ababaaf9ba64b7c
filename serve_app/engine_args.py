"""serve.yaml's engine settings through vLLM's own parser.

Importing this module imports vLLM, which takes many seconds.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any, NoReturn

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.entrypoints.launchers.launcher import validate_api_server_args
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

from serve_app.suggestion import did_you_mean

NOT_IN_A_REPLICA = {
    "api_server_count": "each replica runs one API server",
    "disable_log_stats": "the router needs them",
    "kv_events_config": "the router takes the events",
    "config": "write the settings into serve.yaml",
    "grpc": "replicas are reached through Serve",
    "grpc_port": "replicas are reached through Serve",
    "headless": "each replica runs its API server",
    "host": "set http_options.host",
    "port": "set http_options.port",
    "root_path": "set http_options.root_path",
    "ssl_ca_certs": "set http_options.ssl_ca_certs",
    "ssl_certfile": "set http_options.ssl_certfile",
    "ssl_keyfile": "set http_options.ssl_keyfile",
    "uds": "set http_options.host and port",
}
"""vLLM settings that would silently do nothing, since Serve owns the sockets, and what to do."""

DATA_PARALLEL = "data_parallel_"
"""Begins the names of vLLM's settings for several engines: the router follows one in a replica."""


class EngineArgsError(ValueError):
    """A setting that vLLM does not know or does not accept; the message names its key."""


class _Parser(FlexibleArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise EngineArgsError(message)


def parse(settings: Mapping[str, Any]) -> argparse.Namespace:
    """Parse engine and server settings as `vllm serve` would.

    `settings` is keyed by vLLM's long option names with `_`; values are YAML values.

    Raises:
        EngineArgsError: a key is unknown or useless here, or a value does not fit.
    """
    parser = make_arg_parser(_Parser(add_help=False, allow_abbrev=False))  # type: ignore[no-untyped-call]
    # argparse has no public way to look an option up; vLLM's own config loader reads this too.
    options = parser._option_string_actions
    words: list[str] = []
    for key, value in settings.items():
        if reason := NOT_IN_A_REPLICA.get(key):
            raise EngineArgsError(f"engine.{key} has no effect in a replica: {reason}")
        if key.startswith(DATA_PARALLEL):
            raise EngineArgsError(f"engine.{key}: a replica has one engine; set num_replicas")
        option = _option(key)
        if option not in options:
            remark = did_you_mean(key, [_key(known) for known in options])
            raise EngineArgsError(f"engine.{key} is not a vLLM setting{remark}")
        words += _words(options[option], option, value)
    try:
        args: argparse.Namespace = parser.parse_args(words)
        validate_parsed_serve_args(args)
        AsyncEngineArgs.from_cli_args(args)
        if not (args.tool_parser_plugin or args.reasoning_parser_plugin):
            validate_api_server_args(args)  # type: ignore[no-untyped-call]
    except KeyError as error:
        raise EngineArgsError(f"engine settings refused by vLLM: {error.args[0]}") from error
    except (ValueError, TypeError) as error:
        raise EngineArgsError(f"engine settings refused by vLLM: {error}") from error
    return args


def import_parser_plugins(args: argparse.Namespace) -> None:
    """Import the files that bring parsers of their own, as the arguments name them."""
    if args.tool_parser_plugin:
        ToolParserManager.import_tool_parser(args.tool_parser_plugin)
    if args.reasoning_parser_plugin:
        ReasoningParserManager.import_reasoning_parser(args.reasoning_parser_plugin)


def _words(action: argparse.Action, option: str, value: Any) -> list[str]:
    """Return the command-line words for one setting; a null leaves vLLM's default."""
    switch = isinstance(action, argparse._StoreTrueAction)
    match value:
        case None:
            return []
        case False if switch:
            return []
        case True:
            return [option]
        case False:
            return ["--no-" + option.removeprefix("--")]
        case list() if isinstance(action, argparse._AppendAction):
            return [f"{option}={_word(item)}" for item in value]
        case list() if action.nargs in ("+", "*"):
            return [option, *map(_word, value)]
        case _:
            return [f"{option}={_word(value)}"]


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


def _option(key: str) -> str:
    return "--" + key.replace("_", "-")


def _key(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
