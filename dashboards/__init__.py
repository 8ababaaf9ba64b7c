"""Dashboards, recording rules and alerts as code."""
