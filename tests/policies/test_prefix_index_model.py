"""The index against plain dicts, through any history of events, losses and restarts."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from policies.kv_events import Cleared, EngineHash, Event, EventBatch, Removed, Snapshot, Stored
from policies.match import Match
from policies.prefix_index import PrefixIndex
from policies.types import ReplicaId, Tier
from tests.policies.makers import ROOT, make_hashes, make_stored

EXPECT_S, REMEMBER_S = 10.0, 30.0
Prefix = tuple[int, ...]
"""A block, as the contents of all blocks up to it."""

Held = Counter[tuple[Tier, Prefix]]

PROMPTS = [(1, 1, 1, 1), (1, 1, 2, 1), (1, 2, 1, 2), (2, 1, 1, 2), (2, 2, 2, 2)]
prompts = st.sampled_from(PROMPTS)
tiers = st.sampled_from(Tier)
seldom = st.integers(0, 9).map(lambda number: number == 9)
replicas = st.sampled_from([ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3")])


def _name(prefix: Prefix) -> int:
    """Return the engines' name of a block."""
    return int("".join(map(str, prefix)))


@dataclass
class Replica:
    """What an engine holds, and what the index should believe of it."""

    generation: int = 1
    sequence: int = 0
    held: Held = field(default_factory=Counter)
    known: bool = False
    synced: bool = False
    next_sequence: int = 0
    believed: Held = field(default_factory=Counter)
    expected: dict[Prefix, float] = field(default_factory=dict)

    def lose(self) -> None:
        """Believe nothing until a snapshot comes."""
        self.synced = False
        self.believed.clear()
        self.expected.clear()

    def names(self) -> set[Prefix]:
        """Return the blocks that it is believed to hold in its own memories."""
        return {prefix for (_, prefix), count in self.believed.items() if count}


class IndexMachine(RuleBasedStateMachine):
    """Engines live their lives and report to the index, or fail to."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex(EXPECT_S, REMEMBER_S, max_remembered=1000, max_shared=1000)
        self.now_s = 0.0
        self.replicas: dict[ReplicaId, Replica] = {}
        self.shared: set[Prefix] = set()
        self.evicted: dict[Prefix, float] = {}
        self.held_before: set[Prefix] = set()

    def engine(self, replica: ReplicaId) -> Replica:
        """Return an engine, which begins now if it did not before."""
        return self.replicas.setdefault(replica, Replica())

    def happen(self, engine: Replica, event: Event, prefixes: list[Prefix]) -> None:
        """Let something happen in an engine."""
        if event.tier is not Tier.SHARED:
            self._change(engine.held, event, prefixes)
        engine.sequence += 1

    def happen_to_shared(self, event: Event, prefixes: list[Prefix]) -> None:
        """Let the index hear of the shared tier."""
        match event:
            case Stored(parent=parent):
                if parent is None or prefixes[0][:-1] in self.shared:
                    self.shared.update(prefixes)
            case Removed():
                self.shared.difference_update(prefixes)
            case Cleared():
                self.shared.clear()

    def _change(self, held: Held, event: Event, prefixes: list[Prefix]) -> None:
        match event:
            case Stored(tier):
                held.update((tier, prefix) for prefix in prefixes)
            case Removed(tier):
                for prefix in prefixes:
                    held[tier, prefix] = max(0, held[tier, prefix] - 1)
            case Cleared(tier):
                for key in [key for key in held if key[0] == tier]:
                    del held[key]

    def report(self, replica: ReplicaId, event: Event, prefixes: list[Prefix]) -> None:
        """Let something happen in an engine and tell the index."""
        engine = self.engine(replica)
        sequence = engine.sequence
        self.happen(engine, event, prefixes)
        if not engine.known:
            engine.known, engine.synced, engine.next_sequence = True, sequence == 0, 0
        parent_known = True
        if event.tier is Tier.SHARED:
            self.happen_to_shared(event, prefixes)
        elif isinstance(event, Stored) and event.parent is not None:
            parent_known = prefixes[0][:-1] in engine.names()
        if engine.synced and (sequence > engine.next_sequence or not parent_known):
            engine.lose()
        elif engine.synced:
            if event.tier is not Tier.SHARED:
                self._change(engine.believed, event, prefixes)
            engine.next_sequence = sequence + 1
            if isinstance(event, Stored) and event.tier is Tier.GPU:
                for prefix in prefixes:
                    engine.expected.pop(prefix, None)
        batch = EventBatch(replica, engine.generation, sequence, [event])
        assert self.index.apply(batch, self.now_s) == engine.synced
        self.remember()

    def held(self) -> set[Prefix]:
        """Return the blocks that are believed to be anywhere."""
        return self.shared.union(*(engine.names() for engine in self.replicas.values()))

    def remember(self) -> None:
        """Note what lost its last holder since the last call."""
        held = self.held()
        for prefix in self.held_before - held:
            self.evicted[prefix] = self.now_s
        for prefix in held:
            self.evicted.pop(prefix, None)
        self.held_before = held

    @rule(
        replica=replicas,
        prompt=prompts,
        tier=tiers,
        start=st.integers(0, 3),
        orphaned=seldom,
        lost=seldom,
    )
    def store(
        self,
        replica: ReplicaId,
        prompt: Prefix,
        tier: Tier,
        start: int,
        orphaned: bool,
        lost: bool,
    ) -> None:
        """The end of a prompt is stored; seldom where its parent isn't, or without a report."""
        engine = self.engine(replica)
        known = self.shared if tier is Tier.SHARED else engine.names()
        while start and not orphaned and prompt[:start] not in known:
            start -= 1
        prefixes = [prompt[:end] for end in range(start + 1, len(prompt) + 1)]
        parent = EngineHash(_name(prompt[:start])) if start else None
        contents = make_stored(*prompt, names=[]).contents[start:]
        names = [EngineHash(_name(prefix)) for prefix in prefixes]
        event = Stored(tier, ROOT, parent, names, contents)
        if lost:
            self.happen(engine, event, prefixes)
        else:
            self.report(replica, event, prefixes)

    @rule(replica=replicas, tier=tiers, data=st.data())
    def remove(self, replica: ReplicaId, tier: Tier, data: st.DataObject) -> None:
        """Some blocks are removed from a tier."""
        engine = self.engine(replica)
        held = {prefix for (where, prefix), count in engine.held.items() if where is tier and count}
        if tier is Tier.SHARED:  # any engine may say so
            held = self.shared
        prefixes = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []
        names = [EngineHash(_name(prefix)) for prefix in prefixes]
        self.report(replica, Removed(tier, names), prefixes)

    @rule(replica=replicas, tier=tiers)
    def clear(self, replica: ReplicaId, tier: Tier) -> None:
        """A tier is cleared."""
        self.report(replica, Cleared(tier), [])

    @rule(replica=replicas)
    def restart(self, replica: ReplicaId) -> None:
        """An engine starts again; the index learns of it from its next batch."""
        engine = self.engine(replica)
        engine.generation += 1
        engine.sequence = 0
        engine.held.clear()
        self._hear_first_batch(replica, engine)

    def _hear_first_batch(self, replica: ReplicaId, engine: Replica) -> None:
        engine.lose()
        engine.known = engine.synced = True
        engine.sequence = engine.next_sequence = 1
        assert self.index.apply(EventBatch(replica, engine.generation, 0, []), self.now_s)
        self.remember()

    @precondition(lambda self: self.replicas)
    @rule(replica=replicas)
    def repeat(self, replica: ReplicaId) -> None:
        """An old batch arrives again."""
        engine = self.engine(replica)
        if engine.known and engine.next_sequence > 0:
            event = Cleared(Tier.GPU)
            batch = EventBatch(replica, engine.generation, engine.next_sequence - 1, [event])
            assert self.index.apply(batch, self.now_s) == engine.synced

    @rule(replica=replicas)
    def snapshot(self, replica: ReplicaId) -> None:
        """An engine tells all that it holds."""
        engine = self.engine(replica)
        engine.lose()
        stored: list[Stored] = []
        for (tier, prefix), count in sorted(engine.held.items(), key=lambda i: len(i[0][1])):
            parent = EngineHash(_name(prefix[:-1])) if prefix[1:] else None
            contents = make_stored(prefix[-1], names=[]).contents
            one = Stored(tier, ROOT, parent, [EngineHash(_name(prefix))], contents)
            stored.extend([one] * count)
            if count and (not prefix[1:] or prefix[:-1] in engine.names()):
                engine.believed[tier, prefix] = count
        self.index.restore(
            Snapshot(replica, engine.generation, engine.sequence - 1, stored), self.now_s
        )
        engine.known = engine.synced = True
        engine.next_sequence = engine.sequence
        self.remember()

    @rule(replica=replicas)
    def forget(self, replica: ReplicaId) -> None:
        """A replica is gone; one of that name may come back later, as a new one."""
        self.replicas.pop(replica, None)
        self.index.forget(replica, self.now_s)
        self.remember()

    @rule(replica=replicas, prompt=prompts, start=st.integers(0, 3))
    def expect(self, replica: ReplicaId, prompt: Prefix, start: int) -> None:
        """A request for a prompt is sent somewhere."""
        self.index.expect(replica, make_hashes(*prompt)[start:], self.now_s)
        engine = self.engine(replica)
        if engine.known:
            for end in range(start + 1, len(prompt) + 1):
                engine.expected[prompt[:end]] = self.now_s + EXPECT_S

    @rule(seconds=st.sampled_from([0.0, 3.0, 10.0, 31.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds
        self.index.expire(self.now_s)
        for engine in self.replicas.values():
            for prefix, until_s in list(engine.expected.items()):
                if until_s <= self.now_s:
                    del engine.expected[prefix]
        for prefix, at_s in list(self.evicted.items()):
            if self.now_s - at_s > REMEMBER_S:
                del self.evicted[prefix]

    def model_match(self, engine: Replica, prompt: Prefix) -> Match:
        """Count a prompt's blocks, one by one."""
        prefixes = [prompt[:end] for end in range(1, len(prompt) + 1)]
        counts = [0, 0, 0]
        for prefix in prefixes:
            in_tier = [
                engine.believed[Tier.GPU, prefix] > 0 or prefix in engine.expected,
                engine.believed[Tier.CPU, prefix] > 0,
                prefix in self.shared,
            ]
            begun = max((tier for tier in Tier if counts[tier]), default=Tier.GPU)
            found = next((tier for tier in Tier if tier >= begun and in_tier[tier]), None)
            if found is None:
                break
            counts[found] += 1
        return Match(*counts)

    def memories(self, prefix: Prefix) -> set[tuple[ReplicaId | None, Tier]]:
        """Return where a block is believed to be."""
        own = {
            (replica, tier)
            for replica, engine in self.replicas.items()
            for tier in (Tier.GPU, Tier.CPU)
            if engine.believed[tier, prefix]
        }
        return own | ({(None, Tier.SHARED)} if prefix in self.shared else set())

    @invariant()
    def matches_agree(self) -> None:
        """Every prompt matches as far as the plain dicts say."""
        for prompt in PROMPTS:
            model = {
                replica: self.model_match(engine, prompt)
                for replica, engine in self.replicas.items()
                if engine.known
            }
            found = self.index.match(make_hashes(*prompt))
            assert found == {r: match for r, match in model.items() if match.blocks}

    @invariant()
    def the_rest_agrees(self) -> None:
        """Sync, size and evicted blocks are as the plain dicts say."""
        for replica, engine in self.replicas.items():
            assert self.index.is_synced(replica) == engine.synced
            in_tier = Counter(tier for (tier, _), count in engine.believed.items() if count)
            for tier, blocks in self.index.tier_blocks(replica).items():
                assert blocks == in_tier[tier]
        assert len(self.index) == len(self.held())
        assert self.index.shared_blocks == len(self.shared)
        for prompt in PROMPTS:
            for end, block in enumerate(make_hashes(*prompt), 1):
                assert self.index.evicted_at_s(block) == self.evicted.get(prompt[:end])
                assert set(self.index.memories(block)) == self.memories(prompt[:end])


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=150, stateful_step_count=30)
