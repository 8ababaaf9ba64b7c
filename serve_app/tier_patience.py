"""How long requests wait for the shared tier, and when they don't ask it at all."""

from policies.fetch_patience import PrefillPace, Rest, gives_up
from serve_app.tier_job import TierJob
from serve_app.tier_loads import TierLoads
from serve_app.tier_lookups import TierLookups
from serve_app.tier_report import TierReport
from serve_app.tier_requests import TierRequest


class TierPatience:
    """Knows how fast prompts are computed; a tier that is slower rests for a while.

    It also rests while its threads hang in what was given up, lest more and more waits for them.
    """

    def __init__(self, lookups: TierLookups, loads: TierLoads, report: TierReport) -> None:
        self._lookups = lookups
        self._loads = loads
        self._report = report
        self._pace = PrefillPace()
        self._rest = Rest()

    @property
    def chunk_s(self) -> float | None:
        """How long computing one block takes, None while that's not known."""
        return self._pace.chunk_s

    def is_asked(self, now_s: float) -> bool:
        """Tell whether requests ask the tier now."""
        return not (self._rest.is_on(now_s) or self._lookups.is_stuck or self._loads.is_stuck)

    def waits(self, request: TierRequest, now_s: float) -> bool:
        """Tell whether a request still waits for answers to its lookups."""
        waited_s = request.waited_s(now_s)
        if not gives_up(waited_s, 0, len(request.keys), self._pace.chunk_s):
            return True
        self._lookups.give_up()
        self._begin_rest(now_s, f"no answer for {waited_s:.2f} s")
        return False

    def note_load(self, load: TierJob, now_s: float) -> None:
        """Learn from a load that is over or was given up."""
        if not load.is_over:
            self._begin_rest(now_s, f"{len(load.done)} of {len(load.keys)} blocks so far")
        elif not load.failed:
            self._rest.was_fast()

    def note_computed(self, request: TierRequest) -> None:
        """Learn from a request that is over."""
        self._pace.measured(request.computed, request.computed_s)

    def _begin_rest(self, now_s: float, reason: str) -> None:
        if rest_s := self._rest.begin(now_s):
            self._report.complain("slow (%s), so not asked for %.1f s", reason, rest_s)
