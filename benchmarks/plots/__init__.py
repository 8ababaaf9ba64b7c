"""Figures of what simulations gave; `python -m benchmarks.plots` draws them."""
