"""A random Llama that starts fast and has real KV behaviour.

Untied and wide at the start, so that its greedy answer depends on the whole prompt: with the usual
initialisation every prompt gets the same answer, and a test that compares answers could not fail.
"""

from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM


def make(directory: Path, tokenizer: Path) -> None:
    """Write the model into `directory`, with the tokenizer and chat template of `tokenizer`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=131072,
        tie_word_embeddings=False,
        initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(directory)
