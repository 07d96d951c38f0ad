"""Bidirectional language modelling: the context of each word, words outside of the softmax, losses that can be recorded."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from qkv.base.characters import character_ids
from qkv.base.rows import IGNORE_INDEX, previous_tokens
from qkv.data.inputs import Passages
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.objectives.bidirectional import BidirectionalConfig, BidirectionalLanguageModelling
from qkv.parts.heads import ModelWithHeads
from toy_passages import CLS, FIRST, SEP, UNK, lay_out, text_of

VOCAB, ANSWERS = 20, 15
SHAPE: dict[str, Any] = {
    "width": 12,
    "lstm_width": 10,
    "character_width": 5,
    "filters": ((1, 3), (2, 4)),
    "max_characters": 8,
    "dropout": 0.0,
}


def make(**options: Any) -> ModelWithHeads:
    torch.manual_seed(1)
    model = ModelWithHeads(Elmo(ElmoConfig(**SHAPE, output_words=ANSWERS, **options), VOCAB), BidirectionalConfig().heads)
    words: Any = model.encoder.embedding.token_embedding
    words.set_vocabulary(character_ids([*range(FIRST), *map(chr, range(97, 97 + VOCAB - FIRST))], 8))
    return model


def passages_of(*texts: list[int], width: int = 9) -> Passages:
    return lay_out([[text_of(text)] for text in texts], width, 1)


def objective() -> BidirectionalLanguageModelling:
    return BidirectionalLanguageModelling(BidirectionalConfig(), UNK)


def test_the_word_before() -> None:
    rows = passages_of([7, 8, 9], [7], width=7).rows
    assert previous_tokens(rows).tolist() == [
        [IGNORE_INDEX, CLS, 7, 8, 9, IGNORE_INDEX, IGNORE_INDEX],
        [IGNORE_INDEX, CLS, 7] + [IGNORE_INDEX] * 4,
    ]


def test_the_loss_is_the_mean_of_both_directions_by_one_softmax() -> None:
    model, told = make(), objective()
    ids = [CLS, 7, ANSWERS + 2, 9, SEP]
    answers = [UNK if number >= ANSWERS else number for number in ids]  # beyond the softmax
    passages = passages_of(ids[1:-1])
    *_, (ahead, back) = model.encoder.both_directions(passages.rows)  # type: ignore[operator]
    scores = model.heads["bidirectional"](torch.stack([ahead[0, :4], back[0, 1:5]]))
    forward = F.cross_entropy(scores[0], torch.tensor(answers[1:]), reduction="sum")
    backward = F.cross_entropy(scores[1], torch.tensor(answers[:-1]), reduction="sum")
    torch.testing.assert_close(told.loss(model, passages), (forward + backward) / 2)
    found = told.tally.read()
    assert found["forward_perplexity"] == pytest.approx(math.exp(forward.item() / 4), rel=1e-5)
    assert found["backward_perplexity"] == pytest.approx(math.exp(backward.item() / 4), rel=1e-5)


def test_texts_in_other_rows_and_padding_change_nothing() -> None:
    model, texts = make().eval(), [[7, 8, 9], [10], [11, 12, 6, 7, 8]]
    together = objective().loss(model, passages_of(*texts))
    apart = sum(objective().loss(model, passages_of(text, width=len(text) + 2)) for text in texts)
    torch.testing.assert_close(together, apart)


def test_every_weight_but_the_mix_is_learned_from() -> None:
    model = make()
    objective().loss(model, passages_of([7, 8, 9], [10])).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {"encoder.embedding.token_embedding.weight", "encoder.mix.scores", "encoder.mix.gamma"}
