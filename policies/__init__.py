"""The decisions: where each turn goes and why. Pure Python and numpy; no Ray, no vLLM, no I/O."""
