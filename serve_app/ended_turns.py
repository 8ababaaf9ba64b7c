"""The turns that ended last: each is told of once, however often its end is."""

from policies.types import RequestId

MAX_TURNS = 50_000
"""Which take 6 MB. A replica that got no answer tells of an end again some seconds later."""


class EndedTurns:
    """At most MAX_TURNS of them, also such as nobody saw arrive."""

    def __init__(self) -> None:
        self._ended: dict[RequestId, None] = {}  # the first to end at the beginning

    def __contains__(self, request: RequestId) -> bool:
        """Whether this one ended lately."""
        return request in self._ended

    def add(self, request: RequestId) -> None:
        """Note that one ended."""
        self._ended[request] = None
        if len(self._ended) > MAX_TURNS:
            del self._ended[next(iter(self._ended))]
