"""Dashboards in the form that Grafana stores and imports."""

from collections.abc import Iterator
from typing import Any

from dashboards.panel import Dashboard, Panel

Json = dict[str, Any]

DATA_SOURCE_UID = "warmturn-prometheus"
SCHEMA_VERSION = 39
COLUMNS = 24
PANEL_WIDTH, PANEL_HEIGHT = 8, 8
TIGHT_WIDTH = 6
"""Of panels in rows of four."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def grafana_json(dashboard: Dashboard) -> Json:
    """Return a dashboard's model; any Prometheus can be chosen for it at its top."""
    variable = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": DATA_SOURCE_UID, "value": DATA_SOURCE_UID},
    }
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.help,
        "tags": ["warmturn"],
        "schemaVersion": SCHEMA_VERSION,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "links": [{"type": "dashboards", "tags": ["warmturn"], "title": "warmturn"}],
        "panels": [panel | {"id": id_} for id_, panel in enumerate(_laid_out(dashboard), 1)],
    }


def _laid_out(dashboard: Dashboard) -> Iterator[Json]:
    """Yield headings and panels, each at its place on the page."""
    top = 0
    for row in dashboard.rows:
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {
            "type": "row",
            "title": row.title,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        top += 1
        width = TIGHT_WIDTH if len(row.panels) % 4 == 0 else PANEL_WIDTH
        columns = COLUMNS // width
        for number, panel in enumerate(row.panels):
            line, column = divmod(number, columns)
            yield _panel(panel, column * width, top + line * PANEL_HEIGHT, width)
        top += -(-len(row.panels) // columns) * PANEL_HEIGHT


def _panel(panel: Panel, x: int, y: int, width: int) -> Json:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "gridPos": {"x": x, "y": y, "w": width, "h": PANEL_HEIGHT},
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
    }
