"""A small model and its objective of each kind of pretraining."""

from typing import Any

from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import Electra, ElectraConfig
from qkv.models.ernie import Ernie, ErnieConfig
from qkv.models.gpt import Gpt, GptConfig
from qkv.models.unilm import Unilm, UnilmConfig
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.objectives.causal import CausalConfig, CausalLanguageModelling
from qkv.objectives.ernie import ERNIE_TASKS, ErnieTasks, ErnieTasksConfig
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.permutation import PermutationConfig, PermutationLanguageModelling
from qkv.objectives.replaced import ReplacedConfig, ReplacedTokenDetection
from qkv.objectives.unilm import UnifiedLanguageModelling, UnifiedLanguageModellingConfig
from qkv.parts.heads import LABELS, ModelWithHeads
from toy_passages import vocabulary

VOCAB = 50
WORDS = vocabulary(VOCAB)
SHAPE: dict[str, Any] = {"width": 16, "feedforward": 24, "heads": 2, "layers": 1, "max_positions": 64}
MASKED = MaskedConfig(sentence_task="next", units="ngram")
ERNIE = ErnieTasksConfig.model_validate({"tasks": [{"task": task} for task in LABELS]})
PERMUTATION = PermutationConfig(units="word", segment_length=20)
WAYS = UnifiedLanguageModellingConfig()
MAKERS: dict[str, Any] = {
    "masked": lambda: (MaskedLanguageModelling(MASKED, WORDS), ModelWithHeads(Bert(BertConfig(**SHAPE), VOCAB), MASKED.heads)),
    "replaced": lambda: (ReplacedTokenDetection(ReplacedConfig(), WORDS), Electra(ElectraConfig(**SHAPE), VOCAB)),
    "tied": lambda: (
        ReplacedTokenDetection(ReplacedConfig(), WORDS),
        Electra(ElectraConfig(**SHAPE, generator_size=1.0, tied_generator=True), VOCAB),
    ),
    "ernie": lambda: (
        ErnieTasks(ERNIE, WORDS),
        ModelWithHeads(Ernie(ErnieConfig(**SHAPE, task_types=len(ERNIE_TASKS)), VOCAB), ERNIE.heads),
    ),
    "permutation": lambda: (
        PermutationLanguageModelling(PERMUTATION, WORDS),
        ModelWithHeads(Xlnet(XlnetConfig(**SHAPE), VOCAB), PERMUTATION.heads),
    ),
    "unilm": lambda: (UnifiedLanguageModelling(WAYS, WORDS), ModelWithHeads(Unilm(UnilmConfig(**SHAPE), VOCAB), WAYS.heads)),
    "causal": lambda: (CausalLanguageModelling(CausalConfig(), [1] * VOCAB), ModelWithHeads(Gpt(GptConfig(**SHAPE), VOCAB), ())),
}
