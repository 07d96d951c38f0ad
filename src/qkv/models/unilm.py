"""UniLM (Dong et al. 2019, "Unified Language Model Pre-training for Natural Language Understanding and Generation").

BERT's network; masks decide what it is: an encoder, a language model in either direction, or one that turns a source into a
target (section 2.2). Which of them a text is read as is told by its segments (section 2.1; `parts/modes.py`), of which there are
six, as in the authors' code. Attention probabilities are not dropped out, see bert.py.
B batch, T length.
"""

from collections import deque
from typing import Any, Literal

import torch
from pydantic import field_validator
from torch import Tensor

from qkv.base.rows import Rows, on_each
from qkv.models.bert import SIZES as OF_BERT
from qkv.models.bert import Bert
from qkv.parts.attention_kinds import only_full
from qkv.parts.encoder import EncoderConfig
from qkv.parts.masks import beside_their_past
from qkv.parts.modes import LEFT, spans
from qkv.parts.relative import Looking


class UnilmConfig(EncoderConfig):
    """The shape of a UniLM; the defaults are BERT base's."""

    kind: Literal["unilm"] = "unilm"
    # A text's length is not known while it is written, nor has it a tree.
    positions: Literal["none", "learned", "relative", "rotary", "alibi"] = "learned"
    segments: Literal[6] = 6  # the parts of texts, in all ways to read them

    _all_that_it_may_see = field_validator("attention")(only_full)


SIZES: dict[str, dict[str, Any]] = OF_BERT


class Unilm(Bert):
    """Reads rows of texts, each in the way that its segments say; without segments a token sees its whole text."""

    def who_looks(self, rows: Rows, segment: Tensor | None, like: Tensor) -> Looking:
        if segment is None:
            return super().who_looks(rows, segment, like)
        return spans(rows.text, segment).dense()

    def before(self, rows: Rows, mask: int) -> Tensor:
        """What is known of each token from those before it in its text, as if each was the last one and [MASK]. -> (B, T, D).

        A [MASK] that nobody else sees stands beside every token, so that one pass does what T passes over beginnings would.
        """
        both = on_each(rows, lambda values: torch.cat([values, values], 1))
        length = rows.ids.size(1)
        both = both._replace(ids=torch.cat([rows.ids, torch.full_like(rows.ids, mask)], 1))
        x = self.projection(self.embedding(both, torch.full_like(both.ids, LEFT), None))
        looking = beside_their_past(both.text, both.position, length).dense(len(x), 2 * length, 2 * length, x.device)
        return deque(self.layers_over(x, both, looking), maxlen=1).pop()[:, length:]
