"""Sums over the last while."""

from hypothesis import given
from hypothesis import strategies as st

from policies.token_window import TokenWindow


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 1000)), max_size=50))
def test_window(steps: list[tuple[float, int]]) -> None:
    """A window has all that is younger than 19 twentieths of it, and nothing older than it is."""
    window, now_s, history = TokenWindow(100.0), 0.0, []
    for pause_s, added in steps:
        now_s += pause_s
        history.append((now_s, added))
        window.add(added, now_s)
    young = sum(one for at_s, one in history if at_s > now_s - 95)
    all_of_it = sum(one for at_s, one in history if at_s >= now_s - 100)
    assert young <= window.total(now_s) <= all_of_it


def test_window_span() -> None:
    """A new window is of the time since its first tokens."""
    window = TokenWindow(100.0)
    assert window.span_s(5.0) == 0
    window.add(7, 10.0)
    assert window.span_s(40.0) == 30
    assert window.span_s(400.0) == 100
