"""Follows turns from their arrival to their end, and has them recorded then."""

import socket
from collections.abc import Iterable

from policies.misses import PromptTokens
from policies.types import Decision, Park, Refusal, ReplicaId, RequestId
from serve_app.config import RecordConfig
from serve_app.open_turn import OpenTurn, size_bytes
from serve_app.record_counts import RecordCounts
from serve_app.record_file import RecordFile
from serve_app.record_writer import FinishedTurn, Lines, RecordWriter
from serve_app.recorded_turn import RecordedTurn
from serve_app.replica_report import TurnEnd
from serve_app.route_request import RecordStatus, RouteRequest

MAX_OPEN_BYTES = 256 * 2**20
"""What is kept of turns that have not ended; those that do not fit are not recorded."""

UNHEARD_S = 120.0
"""A turn of which nobody speaks for so long is over; a node that died is noticed after a minute."""


class TurnRecorder:
    """Is told what TurnRecords is told; times are the router's own clock."""

    def __init__(
        self, config: RecordConfig, counts: RecordCounts, file: Lines | None = None
    ) -> None:
        """Record to the file of the settings; a relative path is seen from where Ray started."""
        self.config = config
        self._counts = counts
        self._path = config.path.absolute()
        self._host = socket.gethostname()
        file = file or RecordFile(self._path, int(config.max_gib * 2**30))
        self._writer = RecordWriter(file, counts)
        self._open: dict[RequestId, OpenTurn] = {}
        self._open_bytes = 0

    @property
    def status(self) -> RecordStatus:
        """How it stands."""
        turns, error = self._counts.recorded, self._writer.error
        return RecordStatus(self._host, str(self._path), turns, error)

    def close(self) -> None:
        """Record no more; what was offered is written soon."""
        self._writer.close()

    def arrived(self, asked: RouteRequest, now_s: float) -> None:
        """Note that the router is asked for a turn, for the first time or again."""
        if turn := self._open.get(asked.request):
            turn.arrives_again(now_s)
        elif self._open_bytes + size_bytes(asked) <= MAX_OPEN_BYTES:
            turn = self._open[asked.request] = OpenTurn.arrives(asked, now_s)
            self._open_bytes += turn.size_bytes

    def decided(self, outcome: Decision | Park | Refusal, now_s: float) -> None:
        """Note what was decided on a turn; record one that was turned away."""
        turn = self._open.get(outcome.request)
        if turn is None:
            return
        turn.decided(outcome, now_s)
        if isinstance(outcome, Refusal):
            self._close(outcome.request)
            self._record(turn, turn.line(None, None, None))

    def given_up(self, request: RequestId) -> None:
        """Note that a turn's gateway no longer asks for it; a replica may have it all the same."""
        if turn := self._open.get(request):
            turn.is_given_up = True

    def ended(self, end: TurnEnd, replica: ReplicaId, tokens: PromptTokens | None) -> None:
        """Record a turn of which a replica says that it ended."""
        if turn := self._close(end.request):
            self._record(turn, turn.line(end, replica, tokens))
        else:
            self._counts.unseen += 1

    def expire(self, alive: Iterable[RequestId], now_s: float) -> None:
        """Record the turns that are over though no replica said so; those `alive` wait or run."""
        for request in alive:
            if turn := self._open.get(request):
                turn.heard_at_s = now_s
        over = [one for one, turn in self._open.items() if now_s - turn.heard_at_s > UNHEARD_S]
        for request in over:
            if turn := self._close(request):
                self._record(turn, turn.line(None, None, None))

    def _close(self, request: RequestId) -> OpenTurn | None:
        turn = self._open.pop(request, None)
        if turn:
            self._open_bytes -= turn.size_bytes
        return turn

    def _record(self, turn: OpenTurn, line: RecordedTurn) -> None:
        self._writer.offer(FinishedTurn(line, turn.asked.hashes, turn.size_bytes))
