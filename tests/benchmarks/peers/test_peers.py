"""What each peer makes of caches and load."""

from random import Random

import pytest

from benchmarks.peers.policy import Policy
from benchmarks.peers.registry import POLICIES, make_policy
from policies.kv_events import EngineHash, EventBatch, Stored
from policies.types import ReplicaId, ReplicaState, Request, RequestId, Tier
from tests.policies.makers import BLOCK_SIZE, ROOT, make_hashes, make_state, make_stored

NAMES = ["r0", "r1", "r2", "r3"]


def make_states(**changed: dict[str, int]) -> list[ReplicaState]:
    return [make_state(name, **changed.get(name, {})) for name in NAMES]


def make_request(request: str, *blocks: int) -> Request:
    hashes = make_hashes(*blocks)
    return Request(RequestId(request), None, hashes, len(blocks) * BLOCK_SIZE + 1, BLOCK_SIZE, 0.0)


def hold(policy: Policy, replica: str, *blocks: int) -> None:
    """Let a replica say that it has a prompt in GPU memory; the others, that they have nothing."""
    for name in NAMES:
        stored = [make_stored(*blocks, names=list(blocks))] if name == replica else []
        policy.apply(EventBatch(ReplicaId(name), 1, 0, stored), 0.0)


def place(policy: Policy, request: Request, states: list[ReplicaState]) -> str:
    placed = policy.place(request, states, 0.0)
    assert isinstance(placed, str)
    return placed


PROMPT = tuple(range(1, 41))
LONGER = (*PROMPT, 41, 42)


@pytest.mark.parametrize("name", ["ray-prefix", "sglang"])
def test_approximate_peers_follow_what_they_sent(name: str) -> None:
    """A prompt that extends an earlier one follows it; another one goes to a smaller tree."""
    policy = make_policy(name, Random(1))
    first = place(policy, make_request("a", *PROMPT), make_states())
    assert place(policy, make_request("b", *LONGER), make_states()) == first
    assert place(policy, make_request("c", *range(100, 140)), make_states()) != first


def test_sglang_leaves_the_cache_when_out_of_balance() -> None:
    """Beyond both thresholds the shortest queue takes a request, whatever is cached."""
    policy = make_policy("sglang:balance_abs_threshold=2", Random(1))
    first = place(policy, make_request("a0", *PROMPT), make_states())
    chosen = [place(policy, make_request(f"a{i}", *PROMPT), make_states()) for i in range(1, 5)]
    assert chosen[:2] == [first, first]
    assert chosen[2] != first


@pytest.mark.parametrize(
    "name", ["llmd-weighted", "llmd-sticky", "dynamo", "dynamo-agentic", "production-stack"]
)
def test_event_peers_go_to_the_cache(name: str) -> None:
    """On idle replicas the one that holds the prompt takes it."""
    policy = make_policy(name, Random(1))
    hold(policy, "r2", *PROMPT)
    assert place(policy, make_request("a", *LONGER), make_states()) == "r2"


def test_llmd_weighted_trades_cache_for_memory_and_queue() -> None:
    """Twice the share that is cached, the share of KV that's free, and the queue's place."""
    policy = make_policy("llmd-weighted", Random(1))
    hold(policy, "r2", *PROMPT)
    fuller = make_states(r2={"free_blocks": 500, "waiting": 3})
    assert place(policy, make_request("b", *LONGER), fuller) == "r2"
    busy = make_states(r2={"free_blocks": 0, "waiting": 3})
    assert place(policy, make_request("a", *PROMPT[:20], *range(50, 70)), busy) != "r2"


def test_llmd_sticky_is_sticky_until_saturated() -> None:
    """The holder keeps its prompts until its backlog is worth more than the penalty."""
    policy = make_policy("llmd-sticky:max_ttft_penalty_s=0.5", Random(1))
    hold(policy, "r2", *PROMPT)
    states = make_states()
    chosen = [
        place(policy, make_request(f"a{i}", *PROMPT, *range(100 * i, 100 * i + 5)), states)
        for i in range(1, 40)
    ]
    left = next(i for i, name in enumerate(chosen) if name != "r2")
    # Each adds 21 tokens; 500 take 0.5 s at 1,000 tokens/s.
    assert left == 24


def test_dynamo_counts_active_blocks() -> None:
    """By default one block that decodes weighs as much as one that is cached."""
    default, agentic = (make_policy(name, Random(1)) for name in ("dynamo", "dynamo-agentic"))
    for policy in (default, agentic):
        hold(policy, "r2", *PROMPT)
        for number in range(2):
            place(policy, make_request(f"a{number}", *PROMPT), make_states()[2:3])
            policy.first_byte(RequestId(f"a{number}"), 0.0)
    assert place(default, make_request("b", *LONGER), make_states()) != "r2"


def test_production_stack_docks_load_above_the_mean() -> None:
    """A replica at twice the mean load loses a whole cache hit."""
    policy = make_policy("production-stack", Random(1))
    hold(policy, "r2", *PROMPT)
    chosen = [place(policy, make_request(f"a{i}", *PROMPT), make_states()) for i in range(3)]
    assert chosen[0] == "r2"
    assert set(chosen[1:]) != {"r2"}


def test_session_hash_keeps_sessions() -> None:
    """A session stays, whatever is cached and however busy that replica is."""
    policy = make_policy("session-hash", Random(1))
    request = make_request("a", 1)
    homes = {place(policy, request, make_states()) for _ in range(3)}
    assert len(homes) == 1
    [home] = homes
    busy = make_states(**{home: {"running": 99}})
    assert place(policy, request, busy) == home


def test_blind_peers() -> None:
    """Round robin goes around; of two choices, and for the oracle, the emptier one is taken."""
    states = make_states(r0={"running": 5}, r1={"running": 5}, r2={"running": 5})
    around = make_policy("round-robin", Random(1))
    request = make_request("a", 1)
    assert len({place(around, request, states) for _ in NAMES}) == 4
    assert place(make_policy("oracle", Random(1)), request, states) == "r3"
    chosen = [place(make_policy("power-of-two", Random(i)), request, states) for i in range(40)]
    assert chosen.count("r3") > 10
    assert place(make_policy("random", Random(1)), request, states) in NAMES


def test_cpu_blocks_count_for_less() -> None:
    """A copy in CPU memory is worth less than one in GPU memory."""
    for name in ("llmd-weighted", "dynamo"):
        policy = make_policy(name, Random(1))
        hold(policy, "r1", *PROMPT)
        names = [EngineHash(block) for block in PROMPT]
        in_cpu = Stored(Tier.CPU, ROOT, None, names, make_stored(*PROMPT, names=[*PROMPT]).contents)
        policy.apply(EventBatch(ReplicaId("r2"), 1, 1, [in_cpu]), 0.0)
        assert place(policy, make_request("a", *LONGER), make_states()) == "r1"


def test_unknown_names_and_settings_are_refused() -> None:
    """With what there is instead."""
    with pytest.raises(ValueError, match="there is no policy best; there are warmturn"):
        make_policy("best", Random(1))
    with pytest.raises(ValueError, match="dynamo:temperature=1"):
        make_policy("dynamo:temperature=1", Random(1))
    assert all(make_policy(name, Random(1)) for name in POLICIES)


def test_warmturn_takes_tunables_and_weights() -> None:
    """A scorer's name sets its weight, other settings are tunables."""
    assert make_policy("warmturn:kv_pressure=0.5:stickiness_s=1", Random(1))
    with pytest.raises(ValueError, match="patience"):
        make_policy("warmturn:patience=1", Random(1))
