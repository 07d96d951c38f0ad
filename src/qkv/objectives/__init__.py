"""One file per training task: its keys, its corruption of text, its loss. `OBJECTIVES` lists them by `objective.kind`."""

from qkv.objectives.answering import QuestionAnswering
from qkv.objectives.bidirectional import BidirectionalLanguageModelling
from qkv.objectives.causal import CausalLanguageModelling
from qkv.objectives.classification import Classification
from qkv.objectives.ernie import ErnieTasks
from qkv.objectives.masked import MaskedLanguageModelling
from qkv.objectives.masked_translation import MaskedTranslation
from qkv.objectives.objective import Objective
from qkv.objectives.permutation import PermutationLanguageModelling
from qkv.objectives.regression import Regression
from qkv.objectives.replaced import ReplacedTokenDetection
from qkv.objectives.spans import SpanCorruption
from qkv.objectives.tagging import Tagging
from qkv.objectives.translation import Translation
from qkv.objectives.unilm import UnifiedLanguageModelling

OBJECTIVES: dict[str, type[Objective]] = {
    objective.config_class.model_fields["kind"].default: objective
    for objective in (
        Translation, MaskedTranslation,
        MaskedLanguageModelling, ReplacedTokenDetection, ErnieTasks, PermutationLanguageModelling, UnifiedLanguageModelling,
        BidirectionalLanguageModelling, CausalLanguageModelling, SpanCorruption,
        Classification, Regression, Tagging, QuestionAnswering,
    )
}  # fmt: skip
