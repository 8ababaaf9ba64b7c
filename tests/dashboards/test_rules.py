"""Recordings and alerts, run by promtool over made-up series of one sample a minute."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from dashboards.alerts import ALERTS, ROUTER_JOB
from dashboards.promql import counted
from dashboards.render import ROOT, RULES
from serve_app import metrics

PROMPT = metrics.PROMPT_TOKENS.series
CACHED = metrics.CACHED_TOKENS.series
EXPECTED = metrics.EXPECTED_CACHED_TOKENS.series + '{tier="gpu"}'
FALLBACKS = metrics.ROUTER_FALLBACKS.series + '{WorkerId="w1"}'
AUDITS = metrics.KV_AUDITS.series + '{replica="r1", verdict="differs"}'
SYNCED = metrics.REPLICA_SYNCED.series + '{replica="r1"}'
IN_TIME = f'{metrics.TTFT.series}_bucket{{le="{metrics.TTFT_SLO_S}"}}'
STREAMS = f"{metrics.TTFT.series}_count"
BUSY = metrics.ERRORS.series + '{status="429"}'
TOO_LARGE = metrics.ERRORS.series + '{status="413"}'
DECIDED = metrics.DECISIONS.series + '{rule="stayed"}'
UP = f'up{{job="{ROUTER_JOB}"}}'
COUNTED = (PROMPT, CACHED, EXPECTED, IN_TIME, STREAMS)

HEALTHY = {
    PROMPT: "0+1000x500",
    CACHED: "0+900x500",
    EXPECTED: "0+910x500",
    metrics.DISPERSION.series: "0.4x500",
    metrics.WAITING_REQUESTS.series: "0 3 0x500",
    SYNCED: "1x500",
    IN_TIME: "0+99x500",
    STREAMS: "0+100x500",
    UP: "1x500",
    DECIDED: "0+30x500",
}


@dataclass(frozen=True, slots=True)
class Case:
    """Which alerts fire in a minute where these series differ from healthy ones."""

    name: str
    series: dict[str, str]
    at_min: int
    firing: set[str] = field(default_factory=set)


CASES = (
    Case("all is well", {}, 480),
    Case(
        "prompts changed: neither cached nor expected",
        {CACHED: "0+900x400 360000+100x40", EXPECTED: "0+900x400 360000+100x40"},
        425,
        {"WarmturnHitRatioCollapse"},
    ),
    Case(
        "the ratio was never high",
        {CACHED: "0+60x400 24000+10x40", EXPECTED: "0+60x400 24000+10x40"},
        425,
    ),
    Case(
        "three new sessions at night",
        {
            PROMPT: "0+9000x200 1800000x200 1820000 1840000x3 1860000x40",
            CACHED: "0+8100x200 1620000x240",
            EXPECTED: "0+8100x200 1620000x240",
            DECIDED: "0+30x200 6000x200 6001 6002x3 6003x40",
        },
        416,
    ),
    Case("cached far less than expected", {CACHED: "0+500x500"}, 60, {"WarmturnHitsUnexpected"}),
    Case("no turn comes any more", dict.fromkeys(COUNTED, "0+9x99 900x400"), 480),
    Case(
        "a few replicas have it all",
        {metrics.DISPERSION.series: "1.5x500"},
        60,
        {"WarmturnDispersionAbovePoisson"},
    ),
    Case("load peaks for some minutes", {metrics.DISPERSION.series: "0x30 4x5 0x400"}, 70),
    Case(
        "the router stays silent: a counter that began at its first fallback",
        {FALLBACKS: "_x60 7+3x30"},
        70,
        {"WarmturnRouterFallback"},
    ),
    Case(
        "it stays silent, but few ask",
        {FALLBACKS: "_x60 " + " ".join(f"{count} {count} {count}" for count in range(1, 30))},
        80,
        {"WarmturnRouterFallback"},
    ),
    Case("the router actor restarted once", {FALLBACKS: "_x60 7x60"}, 67),
    Case("KV was wrong once", {AUDITS: "_x60 1x60"}, 63, {"WarmturnKvWrong"}),
    Case("KV was wrong again", {AUDITS: "1x90 2x60"}, 93, {"WarmturnKvWrong"}),
    Case("KV was wrong two hours ago", {AUDITS: "1x150"}, 140),
    Case("nobody answers for the router", {UP: "1x60 0x60"}, 63, {"WarmturnRouterSilent"}),
    Case("a replica asks for its snapshot", {SYNCED: "1x60 0x3 1x60"}, 66),
    Case("a replica stays unknown", {SYNCED: "1x60 0x60"}, 67, {"WarmturnReplicaUnsynced"}),
    Case(
        "requests wait all the time",
        {metrics.WAITING_REQUESTS.series: "0x30 2x60"},
        50,
        {"WarmturnWaiting"},
    ),
    Case(
        "sessions find no place",
        {metrics.REFUSED_TURNS.series: "0x10 0+3x60"},
        30,
        {"WarmturnTurnedAway"},
    ),
    Case("one turn found none", {metrics.REFUSED_TURNS.series: "0x10 1x60"}, 30),
    Case(
        "nine of ten turns are late",
        {IN_TIME: "0+10x500"},
        90,
        {"WarmturnSloBurnFast", "WarmturnSloBurnSlow"},
    ),
    Case(
        "one turn in hours is late",
        {IN_TIME: "0+99x60 5940x400", STREAMS: "0+99x60 5940x340 5941x60"},
        410,
    ),
    Case("four of ten are late", {IN_TIME: "0+60x500"}, 480, {"WarmturnSloBurnSlow"}),
    Case("most get 429", {BUSY: "0+300x500"}, 90, {"WarmturnSloBurnFast", "WarmturnSloBurnSlow"}),
    Case(
        "none but 429 since the start",
        {BUSY: "0+9x500", IN_TIME: "_x500", STREAMS: "_x500"},
        90,
        {"WarmturnSloBurnFast", "WarmturnSloBurnSlow"},
    ),
    Case("clients send what is too large", {TOO_LARGE: "0+300x500"}, 90),
    Case("they were late, and are not now", {IN_TIME: "0+10x60 600+100x500"}, 130),
)


def promtool(*args: str | Path, cwd: Path = ROOT) -> str:
    """Run promtool and return what it says."""
    done = subprocess.run(
        ["promtool", *map(str, args)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_files_are_valid() -> None:
    """What Prometheus would refuse is found here, in rules and scrape configuration."""
    promtool("check", "rules", RULES)
    promtool("check", "config", ROOT / "prometheus.yml")
    assert f"job_name: {ROUTER_JOB}\n" in (ROOT / "prometheus.yml").read_text()


def promises(
    series: dict[str, str], at_min: int, expr: str, samples: list[dict[str, object]], path: Path
) -> None:
    """Let promtool evaluate a query over series, after the rules."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in series.items()
                ],
                "promql_expr_test": [
                    {"expr": expr, "eval_time": f"{at_min}m", "exp_samples": samples}
                ],
            }
        ],
    }
    path.write_text(yaml.safe_dump(test))
    promtool("test", "rules", path)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_alerts(case: Case, tmp_path: Path) -> None:
    """Those that should fire do, and no others."""
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(case.firing)]
    expr = 'count by (alertname) (ALERTS{alertstate="firing"})'
    promises(HEALTHY | case.series, case.at_min, expr, firing, tmp_path / "test.yml")


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ("_x30 50x60", 50),
        ("_x30 50 100 150 200x60", 200),
        ("50x60", 0),
        ("50x20 _x15 50x60", 0),
        ("_x90", 0),
    ],
    ids=["began", "began and grew", "stays", "was not scraped for a while", "never began"],
)
def test_what_a_counter_grew_that_may_begin(values: str, grown: int, tmp_path: Path) -> None:
    """Its first value counts, once, and only when it is the first."""
    samples: list[dict[str, object]] = [{"labels": "{}", "value": grown}]
    expr = f"round({counted('x', '10m')}, 50)"  # `increase` extrapolates
    promises({"x": values}, 38, expr, samples, tmp_path / "test.yml")


def test_every_alert_is_tested() -> None:
    """Each has a case in which it fires."""
    assert set.union(*(case.firing for case in CASES)) == {alert.name for alert in ALERTS}
