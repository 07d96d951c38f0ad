"""The whole T5: layouts, caches, shared weights; biases against the paper's buckets, one pair of positions at a time."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.models.t5 import SIZES, T5, T5Config
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.dot_product import recording
from qkv.parts.relative import T5RelativeBias

VOCAB, BOS = 23, 2
TINY: dict[str, Any] = {
    "width": 16, "feedforward": 24, "heads": 3, "head_width": 5, "encoder_layers": 2, "decoder_layers": 3,
    "buckets": 8, "max_distance": 9,
}  # fmt: skip
VERSIONS: list[dict[str, Any]] = [{}, {"activation": "geglu", "tied": "inputs"}]
CLOSE = {"rtol": 0, "atol": 2e-5}
both = pytest.mark.parametrize("version", VERSIONS, ids=["1.0", "1.1"])


def make(**options: Any) -> T5:
    torch.manual_seed(1)
    model = T5(T5Config(**{**TINY, **options}), VOCAB, VOCAB).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1 or "table" in name:  # norms start at 1, which would hide mistakes
            nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.5)
    return model


def random_rows(rows: int, width: int, seed: int) -> Rows:
    ids = torch.randint(4, VOCAB, (rows, width), generator=torch.Generator().manual_seed(seed))
    return padded_rows(ids, torch.ones_like(ids).bool())


def packed(*texts: Rows) -> Rows:
    """Build one row of texts side by side, with padding after them."""
    ids, position = (torch.cat([getattr(text, name) for text in texts], 1) for name in ("ids", "position"))
    number = torch.cat([torch.full_like(text.ids, n + 1) for n, text in enumerate(texts)], 1)
    return Rows(*(nn.functional.pad(values, (0, 3)) for values in (ids, number, position)))


@both
@torch.no_grad()
def test_packed_texts_are_as_single_ones(version: dict[str, Any]) -> None:
    model = make(**version)
    sources, targets = ([random_rows(2, width, seed) for seed, width in enumerate(widths)] for widths in ([7, 3, 12], [4, 9, 2]))
    together = model(packed(*sources), packed(*targets))
    start = 0
    for source, target in zip(sources, targets, strict=True):
        single = model(source, target)
        torch.testing.assert_close(together[:, start : start + single.size(1)], single, **CLOSE)
        start += single.size(1)


@both
@torch.no_grad()
def test_steps_with_caches_are_as_all_at_once(version: dict[str, Any]) -> None:
    model, source, target = make(**version), random_rows(3, 11, 1), random_rows(3, 15, 2)
    keep = torch.arange(11) < torch.tensor([11, 4, 1])[:, None]
    wanted = model.logits(model(padded_rows(source.ids, keep), target))
    state = PreparedModel(model).start(source.ids, keep, max_length=15)
    for position in range(15):
        torch.testing.assert_close(model.step(target.ids[:, position], state), wanted[:, position], **CLOSE)


@torch.no_grad()
def test_a_future_word_cannot_change_the_past() -> None:
    model, source, target = make(), random_rows(1, 5, 1), random_rows(1, 8, 2)
    before = model(source, target)
    for position in range(8):
        ids = target.ids.clone()
        ids[0, position] = 3
        after = model(source, target._replace(ids=ids))
        torch.testing.assert_close(after[:, :position], before[:, :position], **CLOSE)
        assert float((after[:, position:] - before[:, position:]).abs().max()) > 1e-3


def test_what_is_shared_and_what_is_left_out() -> None:
    old, new = make(), make(**VERSIONS[1])
    assert old.output.weight is old.source_embedding.weight is old.target_embedding.weight
    assert new.output.weight is not new.target_embedding.weight and new.source_embedding is new.target_embedding
    names = [name for name, _ in new.named_parameters()]
    assert not [name for name in names if "bias" in name]
    assert [name for name in names if "table" in name] == ["source_position_scheme.table", "target_position_scheme.table"]
    assert new.encoder[0].feedforward.up.weight.shape == (48, 16)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"a t5 reads and writes one vocabulary; give tokenizer\.shared"):
        T5(T5Config(), 10, 11)


def test_sizes_are_the_published_ones() -> None:
    """The sizes of the four released models, with their vocabulary of 32,128."""
    counts = {"small": 60_506_624, "base": 222_903_552, "small-1.1": 76_961_152, "base-1.1": 247_577_856}
    for name, count in counts.items():
        with torch.device("meta"):
            model = T5(T5Config(**SIZES[name]), 32_128, 32_128)
        assert sum(parameter.numel() for parameter in model.parameters()) == count


# Biases


def bucket(distance: int, buckets: int, far: int, causal: bool) -> int:
    """Compute the bucket as in the code of Raffel et al. 2020, section 2.1; the distance is from the query to the key."""
    first = 0
    if causal:
        distance = max(-distance, 0)
    else:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    steps = int(math.log(distance / exact) / math.log(far / exact) * (buckets - exact))
    return first + min(exact + steps, buckets - 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "far"), [(32, 128), (8, 20), (16, 37)])
def test_buckets_of_distances(buckets: int, far: int, causal: bool) -> None:
    scheme = T5RelativeBias(2, buckets, far, causal)
    distances = range(-3 * far, 3 * far)
    found = scheme.bucket(torch.tensor(distances)).tolist()
    assert found == [bucket(distance, buckets, far, causal) for distance in distances]
    assert {*found} == {*range(buckets)} if causal else len({*found}) == buckets - 1  # a distance of 0 is no future one


@torch.no_grad()
def test_a_number_is_added_for_each_bucket() -> None:
    """Adding to a table's entry multiplies the attention weights of that bucket alone, by the exponential of the addition."""
    model, source, target = make(encoder_layers=1, decoder_layers=1), random_rows(1, 14, 1), random_rows(1, 12, 2)

    def looked() -> list[Tensor]:
        with recording() as weights:
            model(source, target)
        return weights  # of the encoder, the decoder, cross-attention

    before = looked()
    model.source_position_scheme.table[3, 1] += 0.7  # type: ignore[attr-defined]
    model.target_position_scheme.table[2, 0] += 0.9  # type: ignore[attr-defined]
    after = looked()
    for number, (causal, head, which, more) in enumerate(((False, 1, 3, 0.7), (True, 0, 2, 0.9))):
        size = before[number].size(-1)
        added = torch.tensor([[more * (bucket(j - i, 8, 9, causal) == which) for j in range(size)] for i in range(size)])
        wanted = before[number][0, head] * added.exp()
        torch.testing.assert_close(after[number][0, head], wanted / wanted.sum(-1, keepdim=True), **CLOSE)
        others = [other for other in range(3) if other != head]
        torch.testing.assert_close(after[number][0, others], before[number][0, others], **CLOSE)
