"""Load is booked once and released once, whatever happens to a request."""

from collections import Counter
from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from policies.in_flight import InFlight, Load
from policies.releases import Release
from policies.types import Booking, ReplicaId, RequestId, SessionId
from tests.policies.makers import make_booking

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
Q1 = RequestId("q1")


def test_a_requests_life() -> None:
    """A prefill and a fetch are released at the first byte, blocks and place at the end."""
    in_flight = InFlight(expiry_s=60)
    booking = make_booking(cold=True, fetched_tokens=70)
    in_flight.book(booking, 0)
    assert in_flight.load(R1) == Load(100, 10, 1, cold_prefills=1, fetched_tokens=70)
    assert in_flight.session_requests(SessionId("s1"), R1) == 1
    in_flight.first_byte(Q1)
    in_flight.first_byte(Q1)
    assert in_flight.load(R1) == Load(0, 10, decoding=1)
    assert in_flight.end(Q1) == booking
    assert in_flight.end(Q1) is None
    assert in_flight.load(R1) == Load()
    assert not in_flight.sessions()


def test_booked_again_elsewhere() -> None:
    """A request that is tried elsewhere leaves nothing where it was."""
    in_flight = InFlight(expiry_s=60)
    in_flight.book(make_booking(), 0)
    in_flight.book(make_booking(replica="r2"), 1)
    assert in_flight.load(R1) == Load()
    assert in_flight.load(R2) == Load(100, 10, prefilling=1)


def test_who_releases_what_and_when() -> None:
    """What runs on a replica releases its blocks as others did that were answered."""
    in_flight = InFlight(expiry_s=60)
    for number in range(40):
        in_flight.book(make_booking(f"old{number}"), 0)
        if number % 2:  # the others were rejected, or their clients left
            in_flight.first_byte(RequestId(f"old{number}"))
        in_flight.finish(RequestId(f"old{number}"), 10 if number % 2 else 1)
    in_flight.book(make_booking("new", blocks=7), 20)
    in_flight.book(make_booking("waiting", parked=True), 20)
    assert in_flight.releases(R1, usual_s=99, now_s=24) == [Release(6, 7)]
    assert in_flight.releases(R2, usual_s=99, now_s=24) == []
    in_flight.end(RequestId("new"))
    assert in_flight.releases(R1, usual_s=99, now_s=24) == []


def test_parked() -> None:
    """A parked request counts as tokens to come, and as nothing else."""
    in_flight = InFlight(expiry_s=60)
    in_flight.book(make_booking(parked=True), 0)
    in_flight.first_byte(Q1)
    assert in_flight.load(R1) == Load(100)
    assert not in_flight.sessions()
    assert in_flight.median_uncached_tokens() is None
    in_flight.end(Q1)
    assert in_flight.load(R1) == Load()


def test_a_lost_replica() -> None:
    """All that a replica had is released with it, and nothing of the others."""
    in_flight = InFlight(expiry_s=60)
    for request, replica in [("q1", "r1"), ("q2", "r2"), ("q3", "r1")]:
        in_flight.book(make_booking(request, replica), 0)
    in_flight.first_byte(Q1)
    ended = in_flight.end_replica(R1)
    assert {booking.request for booking in ended} == {"q1", "q3"}
    assert in_flight.load(R1) == Load()
    assert in_flight.load(R2) == Load(100, 10, prefilling=1)


def test_ends_that_never_came() -> None:
    """Old bookings are released by time; booking again counts from then."""
    in_flight = InFlight(expiry_s=60)
    first, second = make_booking("q1"), make_booking("q2")
    in_flight.book(first, 0)
    in_flight.book(second, 1)
    in_flight.book(first, 10)
    assert in_flight.expire(61) == ()
    assert in_flight.expire(62) == (second,)
    assert in_flight.load(R1) == Load(100, 10, prefilling=1)
    assert in_flight.expire(71) == (first,)
    assert in_flight.load(R1) == Load()


def test_the_usual_prefill() -> None:
    """The usual prefill is the median of those booked, ended ones included."""
    in_flight = InFlight(expiry_s=60)
    assert in_flight.median_uncached_tokens() is None
    for i, tokens in enumerate([50, 7, 900]):
        in_flight.book(make_booking(f"q{i}", uncached_tokens=tokens), 0)
    in_flight.end(RequestId("q0"))
    assert in_flight.median_uncached_tokens() == 50


requests = st.sampled_from("abcd")
bookings = st.builds(
    make_booking,
    requests,
    st.sampled_from(["r1", "r2"]),
    session=st.sampled_from(["s1", "s2", None]),
    uncached_tokens=st.integers(1, 9),
    fetched_tokens=st.integers(0, 9),
    blocks=st.integers(0, 9),
    cold=st.booleans(),
    parked=st.booleans(),
)
steps = st.lists(
    st.one_of(
        bookings,
        st.tuples(st.sampled_from(["first_byte", "end"]), requests),
        st.tuples(st.just("end_replica"), st.sampled_from(["r1", "r2"])),
        st.tuples(st.just("wait"), st.sampled_from([1, 5, 11])),
    ),
    max_size=40,
)


class Model:
    """Bookings as a plain dict, summed when asked."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[Booking, float, bool]] = {}

    def load(self, replica: ReplicaId) -> Load:
        """Sum over all requests."""
        total = Load()
        for booking, _, decoding in self.entries.values():
            if booking.replica == replica and booking.parked:
                total += Load(booking.uncached_tokens)
            elif booking.replica == replica and decoding:
                total += Load(0, booking.blocks, 0, 0, 1)
            elif booking.replica == replica:
                total += Load(
                    booking.uncached_tokens,
                    booking.blocks,
                    prefilling=1,
                    cold_prefills=int(booking.cold),
                    fetched_tokens=booking.fetched_tokens,
                )
        return total

    def sessions(self) -> Counter[tuple[SessionId | None, ReplicaId]]:
        """Count each session's requests on each replica."""
        running = (booking for booking, _, _ in self.entries.values() if not booking.parked)
        return Counter((booking.session, booking.replica) for booking in running)


@given(steps)
def test_any_history(history: list[Booking | tuple[str, str | int]]) -> None:
    """After any history the sums are those of the requests that are still booked."""
    in_flight, model, now_s = InFlight(expiry_s=10), Model(), 0.0
    booked: list[int] = []
    for step in history:
        match step:
            case Booking(request):
                in_flight.book(step, now_s)
                model.entries[request] = (step, now_s, False)
                booked += [] if step.parked else [step.uncached_tokens]
            case ("first_byte", request):
                in_flight.first_byte(RequestId(str(request)))
                if found := model.entries.get(str(request)):
                    model.entries[str(request)] = (*found[:2], not found[0].parked)
            case ("end", request):
                in_flight.end(RequestId(str(request)))
                model.entries.pop(str(request), None)
            case ("end_replica", replica):
                in_flight.end_replica(ReplicaId(str(replica)))
                kept = {r: e for r, e in model.entries.items() if e[0].replica != replica}
                model.entries = kept
            case (_, seconds):
                now_s += float(seconds)
                old = {r: e[0] for r, e in model.entries.items() if now_s - e[1] > 10}
                assert set(in_flight.expire(now_s)) == set(old.values())
                model.entries = {r: e for r, e in model.entries.items() if r not in old}
        for replica in (R1, R2):
            assert in_flight.load(replica) == model.load(replica)
        assert set(in_flight.sessions()) == set(model.sessions())
        for (session, replica), count in model.sessions().items():
            expected = 0 if session is None else count
            assert in_flight.session_requests(session, replica) == expected
        assert in_flight.median_uncached_tokens() == (median(booked) if booked else None)
