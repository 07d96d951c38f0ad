"""qkv's pretraining of encoders and GPTs: the loop that `qkv train` runs, held up between rounds; or, bare, its update alone."""

from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.bench.systems.qkv_training import Bare, Held, Loop, held
from qkv.data.documents import Documents
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD
from qkv.data.passages import PassageBatches
from qkv.data.tokens import TokenTexts
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import Electra, ElectraConfig
from qkv.models.gpt import Gpt, GptConfig
from qkv.objectives.causal import CausalConfig, CausalLanguageModelling
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.masking import MaskingVocabulary
from qkv.objectives.replaced import ReplacedConfig, ReplacedTokenDetection
from qkv.parts.heads import ModelWithHeads


def model_of(size: dict[str, Any], dropout: float = 0.0, max_positions: int = 512) -> nn.Module:
    """A model of that size with what its pretraining needs, and random weights."""
    shape = {name: size[name] for name in ("width", "feedforward", "heads", "layers")}
    if size["kind"] == "electra":
        config = ElectraConfig(**shape, dropout=dropout, embedding_width=size["embedding"], generator_size=size["generator"])
        return Electra(config, size["vocab"])
    if size["kind"] == "gpt":
        return ModelWithHeads(Gpt(GptConfig(**shape, dropout=dropout, max_positions=max_positions), size["vocab"]), [])
    return ModelWithHeads(Bert(BertConfig(**shape, dropout=dropout), size["vocab"]), ["masked"])


def parameters(size: dict[str, Any], length: int) -> int:
    """How many weights such a model has, for texts of so many tokens."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in model_of(size, max_positions=length).parameters())


def objective_of(job: Any) -> MaskedLanguageModelling | ReplacedTokenDetection | CausalLanguageModelling:
    if job.size["kind"] == "gpt":
        return CausalLanguageModelling(CausalConfig(), [1] * job.size["vocab"])
    vocabulary = MaskingVocabulary(job.size["vocab"], job.first, job.mask_token, (job.pad, job.bos, job.eos))
    if job.size["kind"] == "electra":
        return ReplacedTokenDetection(ReplacedConfig(rate=job.masked), vocabulary)
    return MaskedLanguageModelling(MaskedConfig(rate=job.masked), vocabulary)


def documents_of(job: Any) -> Documents:
    """Each text a document of one sentence, each of its tokens a word."""
    count, length = job.documents.shape
    ends = np.arange(1, count + 1) * length
    flags = np.full(job.documents.size, BEGINS_WORD | BEGINS_UNIT, dtype=np.uint8)
    sentences = TokenTexts(np.full(count, length, dtype=np.int64), np.arange(1, count + 1))
    return Documents(TokenTexts(job.documents.reshape(-1), ends), sentences, TokenTexts(flags, ends))


def trainer_of(job: Any) -> Held:
    """Everything as `qkv train` puts it together for a recipe with these documents."""
    batches = PassageBatches(
        documents=documents_of(job), chosen=np.arange(len(job.documents)), seed=job.seed, rows=job.rows, length=job.length,
        bos=job.bos, eos=job.eos, pad=job.pad, tasks={"masking": (1.0, 0)}, running=job.size["kind"] == "gpt",
    )  # fmt: skip
    torch.manual_seed(job.seed)
    model = model_of(job.size, job.dropout, job.length).to(job.device)
    return held(job, model, objective_of(job), batches, job.rows * job.length)


def make(job: Any) -> Loop:
    return (Bare if job.options.get("bare") else Loop)(job, trainer_of(job))
