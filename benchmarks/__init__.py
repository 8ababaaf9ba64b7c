"""Measurements of warmturn: each is a command, `python -m benchmarks.NAME`."""
