"""Checks a serve.yaml without a cluster: `python -m serve_app.check serve.yaml`."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from serve_app import serve_file
from serve_app.vllm_platform import assume_cpu


def check(path: Annotated[Path, typer.Argument()] = Path("serve.yaml")) -> None:
    """Parse the file as Ray Serve, warmturn and vLLM will; exit with 2 if one refuses it."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        config = serve_file.app_config(serve_file.load(path))
        # vLLM is slow to import, and an error in the file itself needs none of it.
        assume_cpu()
        from serve_app import engine_args, kv_tiers

        kv_tiers.check(engine_args.parse(config.engine_settings()), config)
    except ValueError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    print(f"{path}: good")


if __name__ == "__main__":
    typer.run(check)
