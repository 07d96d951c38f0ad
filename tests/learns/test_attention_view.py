"""Trained models show in their attention view what they have learned: reversed order, a head that attends to the
previous token.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.rows import Rows, padded_rows
from qkv.lens.head_patterns import find_head_patterns
from qkv.lens.inspectors import EncoderDecoderInspector, Inspector, SelfAttentionInspector
from qkv.lens.tokenized_text import TokenizedText
from qkv.lens.view import look
from qkv.models.bert import Bert, BertConfig
from qkv.models.transformer import Transformer, TransformerConfig

BOS, EOS, FIRST, VOCAB, LONG = 2, 3, 4, 14, 5


def rows_of(ids: Tensor) -> Rows:
    return padded_rows(ids, torch.ones_like(ids, dtype=torch.bool))


def text_of(ids: list[int]) -> TokenizedText:
    """Return a text whose ordinary tokens are one word each."""
    ordinary = [number for number in ids if number >= FIRST]
    numbers = iter(range(len(ordinary)))
    words = [next(numbers) if number >= FIRST else None for number in ids]
    return TokenizedText(
        ids, [str(number) for number in ids], words, [number == EOS for number in ids], [str(n) for n in ordinary]
    )


class Loaded:
    """An inspectable stand-in for a loaded run."""

    def __init__(self, inspector: Inspector):
        self.shown = inspector

    def inspect(self, text: str, target: str | None = None) -> Inspector:
        return self.shown


def test_a_translator_that_turns_sentences_round_shows_it() -> None:
    size = {"width": 32, "feedforward": 32, "heads": 1, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 16}
    model = Transformer(TransformerConfig(**size, dropout=0.0, norm="pre", positions="learned", tied="none"), VOCAB, VOCAB)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(250):
        source = torch.randint(FIRST, VOCAB, (32, LONG))
        target = source.flip(1)
        read = torch.cat([torch.full((32, 1), BOS), target], 1)
        wanted = torch.cat([target, torch.full((32, 1), EOS)], 1)
        scores = model.logits(model(rows_of(source), rows_of(read)))
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.1
    words = [5, 9, 4, 12, 7]
    turned = words[::-1]
    texts = {"source": text_of(words), "target": text_of([*turned, EOS]), "read": text_of([BOS, *turned])}
    inspector = EncoderDecoderInspector(
        "transformer", model.eval(), rows_of(torch.tensor([words])), rows_of(torch.tensor([[BOS, *turned]])), texts, None, ""
    )
    seen = look(Loaded(inspector), "")
    assert seen.alignment is not None
    best = {target: source for source, target, _ in reversed(seen.alignment)}  # the strongest is the last to be set
    assert best == {target: LONG - 1 - target for target in range(LONG)}
    assert seen.attribution is not None and seen.attribution.each is not None
    assert seen.attribution.each[:LONG].argmax(1).tolist() == [*range(LONG - 1, -1, -1)]


@pytest.mark.parametrize(("pattern", "by"), [("previous", 1), ("next", -1)])
def test_a_head_that_has_to_look_beside_itself_is_named(pattern: str, by: int) -> None:
    shape = BertConfig(width=32, feedforward=32, heads=1, layers=1, max_positions=12, dropout=0.0, positions="relative")
    model, readout = Bert(shape, VOCAB), nn.Linear(32, VOCAB)
    optimiser = torch.optim.Adam([*model.parameters(), *readout.parameters()], lr=1e-2)
    for _ in range(80):
        ids = torch.randint(FIRST, VOCAB, (32, 12))
        scores = readout(model(rows_of(ids)))
        loss = F.cross_entropy(scores.flatten(0, 1), ids.roll(by, 1).flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(loss.detach()) < 0.5
    words = [5, 9, 4, 12, 7, 11, 6, 13, 8, 10, 5, 9]
    texts = {"source": text_of(words)}
    found = find_head_patterns(
        SelfAttentionInspector("encoder", "bert", model.eval(), rows_of(torch.tensor([words])), None, texts, None, None).maps(),
        texts,
    )
    assert found[0].pattern == pattern and found[0].score > 0.8
