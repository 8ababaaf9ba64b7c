"""The decisions can be made anywhere."""

import subprocess
import sys
from pathlib import Path

import policies

PACKAGE = Path(policies.__file__).parent


def test_no_shell_no_engine() -> None:
    """Importing all of policies brings in neither Ray nor vLLM, torch or the shell."""
    files = PACKAGE.rglob("*.py")
    parts = (file.relative_to(PACKAGE.parent).with_suffix("").parts for file in files)
    modules = sorted(".".join(part).removesuffix(".__init__") for part in parts)
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    loaded = {name.split(".")[0] for name in found.stdout.split()}
    assert "policies" in loaded
    assert "numpy" in loaded
    assert not loaded & {"ray", "vllm", "torch", "serve_app", "pydantic", "msgspec"}
