"""Each turn that arrives has one line, whatever is said of it afterwards and however often."""

import json
import threading
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from policies.tunables import Tunables
from policies.types import ReplicaId, RequestId
from serve_app.config import RecordConfig
from serve_app.record_counts import RecordCounts
from serve_app.replica_report import TurnEnd
from serve_app.turn_recorder import UNHEARD_S, TurnRecorder
from serve_app.turn_records import TurnRecords
from tests.makers import make_decision, make_turn

NAMES = ("q1", "q2", "q3")
NODE_DEATH_S = 65.0
"""How long Ray may take to notice one, and a gateway to try its turns elsewhere, at most."""


class KeptLines:
    """Lines in memory, instead of a file."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.closed = threading.Event()

    def prepare(self) -> bool:
        return False

    def append(self, line: bytes) -> None:
        self.requests[json.loads(line)["request"]] += 1

    def close(self) -> None:
        self.closed.set()


said = st.tuples(st.sampled_from(NAMES), st.sampled_from(("asks", "gives up", "ends", "pauses")))


@given(st.lists(said, max_size=20))
def test_a_turn_has_one_line_or_is_counted(story: list[tuple[str, str]]) -> None:
    """One line if it arrived before its end was heard of, else it is counted as unseen, once."""
    lines, records = KeptLines(), TurnRecords()
    counts = RecordCounts()
    recorder = TurnRecorder(RecordConfig(path=Path("none")), counts, lines)
    records.recorder = recorder
    arrived, unseen = set[str](), set[str]()
    heard_at_s = dict.fromkeys(NAMES, 0.0)
    now_s = 0.0
    for name, happens in story:
        turn = make_turn(name, 1, session="s1")
        if happens == "pauses":
            now_s += NODE_DEATH_S
            running = [one for one in NAMES if now_s - heard_at_s[one] > NODE_DEATH_S]
            heard_at_s |= dict.fromkeys(running, now_s)
            records.expire([RequestId(one) for one in running], now_s)
        elif happens == "gives up":
            records.given_up(turn.request)
        elif happens == "asks":
            heard_at_s[name] = now_s
            records.arrived(turn, now_s)
            records.decided(make_decision(turn, "r1"), Tunables(), now_s)
            if name not in unseen:
                arrived.add(name)
        elif not records.has_ended(turn.request):
            records.ended(TurnEnd(RequestId(name), 6, 0, 5, 0.25), ReplicaId("r1"), None)
            if name not in arrived:
                unseen.add(name)
    records.expire((), now_s + UNHEARD_S + 1)
    recorder.close()
    assert lines.closed.wait(5)
    assert lines.requests == Counter(f"http-{name}" for name in arrived)
    assert counts.unseen == len(unseen)
