"""A tiny ELMo learns, in both directions, texts whose words come in pairs."""

from typing import Any

import torch

from qkv.base.characters import character_ids
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.objectives.bidirectional import BidirectionalConfig, BidirectionalLanguageModelling
from qkv.parts.heads import ModelWithHeads
from toy_passages import FIRST, UNK, Passages, lay_out, text_of

STEMS = ["bil", "dor", "fam", "gun", "hep", "kas", "lot", "mir"]
WORDS = [*(f"{stem}o" for stem in STEMS), *(f"{stem}a" for stem in STEMS)]  # bilo goes with bila
LONG, UPDATES = 4, 200


def drawn(texts: int) -> Passages:
    """Return texts of word pairs; each word of a pair determines the other."""
    first = FIRST + torch.randint(len(STEMS), (texts, LONG))
    pairs = torch.stack([first, first + len(STEMS)], -1).flatten(1)
    return lay_out([[text_of(ids)] for ids in pairs.tolist()], 2 * LONG + 2, 1)


def trained() -> tuple[ModelWithHeads, BidirectionalLanguageModelling]:
    torch.manual_seed(1)
    c = ElmoConfig(
        width=64,
        lstm_width=64,
        layers=1,
        character_width=8,
        filters=((2, 24), (4, 24)),
        highway_layers=1,
        max_characters=8,
        dropout=0.0,
    )
    model = ModelWithHeads(Elmo(c, FIRST + len(WORDS)), BidirectionalConfig().heads)
    words: Any = model.encoder.embedding.token_embedding
    words.set_vocabulary(character_ids([*range(FIRST), *WORDS], 8))
    objective = BidirectionalLanguageModelling(BidirectionalConfig(), UNK)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(learned, fused=True)
    for step in range(UPDATES):
        optimiser.param_groups[0]["lr"] = 2e-2 * min((step + 1) / 10, 1 - step / UPDATES)
        passages = drawn(16)
        (objective.loss(model, passages) / (16 * (2 * LONG + 1))).backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        optimiser.zero_grad()
    objective.tally.read()
    return model.eval(), objective


def test_an_elmo_learns_pairs_from_both_ends() -> None:
    """A model that knows the pairs has a perplexity of 8^(4/9), about 2.5: 4 of 9 words are one of 8, and the others are certain.

    A model that knows only word frequencies has about 16.
    """
    torch.manual_seed(2)
    model, objective = trained()
    with torch.no_grad():
        objective.loss(model, drawn(64))
    found = objective.tally.read()
    assert found["forward_perplexity"] < 3 and found["backward_perplexity"] < 3, found
