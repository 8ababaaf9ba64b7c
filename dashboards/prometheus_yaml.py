"""Recordings and alerts in the form of Prometheus' rule files."""

from typing import Any

import yaml

from dashboards.alerts import ALERTS
from dashboards.recordings import RECORDINGS
from dashboards.rule import Alert, Recording

HEADER = (
    "# Written by `python -m dashboards.render`; edit dashboards/recordings.py and alerts.py.\n"
)


def rules_yaml() -> str:
    """Return the whole file."""
    groups = [
        {"name": "warmturn-recordings", "rules": [_recording(one) for one in RECORDINGS]},
        {"name": "warmturn-alerts", "rules": [_alert(one) for one in ALERTS]},
    ]
    return HEADER + yaml.safe_dump({"groups": groups}, sort_keys=False, width=100)


def _recording(recording: Recording) -> dict[str, Any]:
    return {"record": recording.name, "expr": recording.expr}


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.for_,
        "labels": {"severity": str(alert.severity)},
        "annotations": {"summary": alert.summary, "runbook": alert.runbook},
    }
