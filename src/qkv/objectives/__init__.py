"""One file per training task: its keys, its corruption of text, its loss. `OBJECTIVES` lists them by `objective.kind`."""

from qkv.objectives.answering import Answering
from qkv.objectives.bidirectional import Bidirectional
from qkv.objectives.causal import Causal
from qkv.objectives.classification import Classification
from qkv.objectives.ernie import Continual
from qkv.objectives.masked import Masked
from qkv.objectives.masked_translation import MaskedTranslation
from qkv.objectives.objective import Objective
from qkv.objectives.permutation import Permutation
from qkv.objectives.regression import Regression
from qkv.objectives.replaced import Replaced
from qkv.objectives.spans import Spans
from qkv.objectives.tagging import Tagging
from qkv.objectives.translation import Translation
from qkv.objectives.unilm import FourWays

OBJECTIVES: dict[str, type[Objective]] = {
    objective.config_class.model_fields["kind"].default: objective
    for objective in (
        Translation, MaskedTranslation,
        Masked, Replaced, Continual, Permutation, FourWays, Bidirectional, Causal, Spans,
        Classification, Regression, Tagging, Answering,
    )
}  # fmt: skip
