"""Segments, joined, against tokenizers that encode the whole text."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from serve_app.segment_encoder import SegmentEncoder, cuts

pytestmark = pytest.mark.slow

START, END = "<|im_start|>", "<|im_end|>"
LONGER = START + "user<tool>"
CORPUS = [f"def f{n}(x): return x + {n}  # é ñ 漢字 the user said: hello, world" for n in range(50)]
ADDED = [
    AddedToken(START, special=True, normalized=False),
    AddedToken(END, special=True, normalized=False),
    AddedToken(LONGER, special=True, normalized=False),
    AddedToken("d|><|im", special=True, normalized=False),
    AddedToken("<tool>", normalized=False),
    AddedToken("hello", normalized=True),
]

texts = st.lists(
    st.one_of(
        st.sampled_from([START, END, LONGER, "<tool>", "<|im_", "start|>", "<|im_end|><|im_end|"]),
        st.sampled_from(
            ["", " ", "\n", "  \n\n ", "hello", "user", "word", "\u0301", "e\u0301", "漢"]
        ),
        st.sampled_from(["👩‍👩‍👧", "a" * 500, "\u00a0", "▁", "\uff1c|im_start|\uff1e", "\u0000"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    max_size=12,
).map("".join)


def _train(model: Any, trainer: Any, pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(ADDED)
    return tokenizer


def _bpe(pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<unk>"], initial_alphabet=alphabet, show_progress=False
    )
    model = models.BPE(unk_token="<unk>", fuse_unk=True)
    return _train(model, trainer, pre_tokenizer, normalizer)


def _unigram() -> Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    return _train(models.Unigram(), trainer, pre_tokenizers.Metaspace(prepend_scheme="first"))


def _with_bos() -> Tokenizer:
    tokenizer = _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}",
        special_tokens=[(one, tokenizer.token_to_id(one)) for one in (START, END)],
    )
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "bytes with prefix space": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "NFC": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC()),
    "NFKC": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFKC()),
    "strip": lambda: _bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Strip()),
    "prepend": lambda: _bpe(
        pre_tokenizers.Split(" ", "merged_with_next"),
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    ),
    "metaspace first": lambda: _bpe(pre_tokenizers.Metaspace(prepend_scheme="first")),
    "metaspace always": lambda: _bpe(pre_tokenizers.Metaspace(prepend_scheme="always")),
    "unigram": _unigram,
    "post-processor": _with_bos,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return TOKENIZERS[request.param]()


def _encoder(tokenizer: Tokenizer, max_bytes: int) -> SegmentEncoder:
    cut = cuts(tokenizer)
    assert cut is not None
    return SegmentEncoder(tokenizer, cut, max_bytes)


def _joined(encoder: SegmentEncoder, text: str) -> list[int]:
    segments = encoder.encode(text)
    assert all(segment.dtype == np.uint32 for segment in segments)
    return [int(token) for segment in segments for token in segment]


@settings(max_examples=150, deadline=None)
@given(before=st.lists(texts, max_size=4), text=texts, max_bytes=st.sampled_from([0, 2000, 10**6]))
@example([], "e" + START + "\u0301" + END + " hello", 0)
@example([], LONGER + "d|><|im_end|>", 0)
def test_segments_are_the_whole(
    tokenizer: Tokenizer, before: list[str], text: str, max_bytes: int
) -> None:
    """Whatever was encoded before, and however little is remembered, the ids are the whole's."""
    encoder = _encoder(tokenizer, max_bytes)
    for one in [*before, *(a + b for a in before for b in before), text, text]:
        assert _joined(encoder, one) == tokenizer.encode(one, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "habit", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}], ids=str
)
def test_tokens_that_look_beside_them(habit: dict[str, bool]) -> None:
    """No cut where a token depends on what is beside it."""
    tokenizer = TOKENIZERS["bytes"]()
    tokenizer.add_tokens([AddedToken("<mask>", special=True, normalized=False, **habit)])
    assert cuts(tokenizer) is None


def test_other_tokenizers_that_cannot_be_cut() -> None:
    """No cut where tokens are encoded as text, where encoding is random, or without tokens."""
    as_text = TOKENIZERS["bytes"]()
    as_text.encode_special_tokens = True
    random = TOKENIZERS["bytes"]()
    random.model.dropout = 0.1
    assert cuts(as_text) is cuts(random) is cuts(Tokenizer(models.BPE())) is None


class _Counting:
    """A tokenizer that notes what it is asked to encode."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.asked: list[str] = []

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> Any:
        self.asked += texts
        return self._tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


def _counting(max_bytes: int) -> tuple[SegmentEncoder, _Counting]:
    tokenizer = TOKENIZERS["bytes"]()
    counting: Any = _Counting(tokenizer)
    cut = cuts(tokenizer)
    assert cut is not None
    return SegmentEncoder(counting, cut, max_bytes), counting


def test_a_segment_is_encoded_once() -> None:
    """What was there before is neither encoded again nor copied, in whatever order it comes."""
    encoder, counting = _counting(10**6)
    first = encoder.encode(f"{START}a{END}\n{START}b{END}\n")
    assert counting.asked == [START + "a", END + "\n", START + "b"]
    counting.asked.clear()
    again = encoder.encode(f"{START}b{END}\n{START}c")
    assert counting.asked == [START + "c"]
    assert again[0] is first[2]


def test_the_least_recently_used_is_forgotten() -> None:
    """Memory is bounded; what was used last stays."""
    encoder, counting = _counting(1000)
    for text in ("a", "b", "a", "c", "a"):
        encoder.encode(START + text)
    assert counting.asked == [START + text for text in "abc"]
    encoder.encode(START + "b")
    assert counting.asked[-1] == START + "b"
