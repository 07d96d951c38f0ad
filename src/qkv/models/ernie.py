"""ERNIE: BERT's network with other pretraining tasks.

ERNIE 1.0 (Sun et al. 2019, "ERNIE: Enhanced Representation through Knowledge Integration") differs from BERT only in its masking.
ERNIE 2.0 (Sun et al. 2020, "ERNIE 2.0: A Continual Pre-training Framework for Language Understanding") adds task embeddings.
Departure: no dropout on attention probabilities, see bert.py.
"""

from typing import Any, Literal

from pydantic import Field

from qkv.models.bert import Bert
from qkv.models.family import Family
from qkv.parts.encoder import BertEmbedding, EncoderConfig
from qkv.parts.token_scores import masked_each


class ErnieConfig(EncoderConfig):
    """The shape of an ERNIE; the defaults are ERNIE 1.0 base."""

    kind: Literal["ernie"] = "ernie"
    task_types: int = Field(default=0, ge=0)  # number of task embeddings, as in 2.0; 0 for 1.0


SIZES: dict[str, dict[str, Any]] = {"base": {}}


class Ernie(Bert):
    """A BERT that may have task embeddings."""

    def __init__(self, c: ErnieConfig, vocab: int):
        super().__init__(c, vocab, BertEmbedding(c, vocab, c.width, c.task_types))


FAMILY = Family(
    kind="ernie",
    config=ErnieConfig,
    network=Ernie,
    sizes=SIZES,
    objectives=("masked", "ernie"),
    loads_as="encoder",
    token_scores={"each": masked_each},
)
