"""Measurements: what the decisions cost."""
