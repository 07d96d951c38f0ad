"""One file per system: its config, its published sizes, its networks, and at the end its `FAMILY`."""

from qkv.models import albert, bert, convolution, electra, elmo, ernie, gpt, rnn, t5, transformer, unilm, xlnet
from qkv.models.family import Family, seeded_initialisation

__all__ = ["FAMILIES", "Family", "seeded_initialisation"]

FAMILIES: dict[str, Family] = {
    model.FAMILY.kind: model.FAMILY
    for model in (transformer, rnn, convolution, t5, bert, albert, electra, ernie, xlnet, unilm, elmo, gpt)
}
