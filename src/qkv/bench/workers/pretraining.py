"""qkv's pretraining of encoders, GPTs, T5s and ELMos: the loop of `qkv train`, paused between rounds; bare: its update alone."""

from typing import Any

import numpy as np
import torch
from torch import nn

from qkv.base.characters import character_ids
from qkv.base.undrawn import shapes_only
from qkv.bench.workers.training import BareUpdates, PausedTrainer, TrainingLoop, build_trainer
from qkv.bench.workload import spellings
from qkv.data.documents import Documents
from qkv.data.inputs import BEGINS_UNIT, BEGINS_WORD
from qkv.data.passages import TextBatchSettings
from qkv.data.tokens import TokenTexts
from qkv.models.bert import Bert, BertConfig
from qkv.models.electra import Electra, ElectraConfig
from qkv.models.elmo import SIZES as ELMOS
from qkv.models.elmo import Elmo, ElmoConfig
from qkv.models.gpt import Gpt, GptConfig
from qkv.models.t5 import T5, VERSION_1_1, T5Config
from qkv.models.xlnet import Xlnet, XlnetConfig
from qkv.objectives.bidirectional import BidirectionalConfig, BidirectionalLanguageModelling
from qkv.objectives.causal import CausalConfig, CausalLanguageModelling
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.masking import MaskingVocabulary
from qkv.objectives.objective import PretrainingObjective
from qkv.objectives.permutation import PermutationConfig, PermutationLanguageModelling
from qkv.objectives.replaced import ReplacedConfig, ReplacedTokenDetection
from qkv.objectives.spans import SpanCorruption, SpansConfig
from qkv.parts.heads import ModelWithHeads

SENTINELS = 100  # the last tokens of a T5's vocabulary


def build_model(size: dict[str, Any], dropout: float = 0.0, max_positions: int = 512) -> nn.Module:
    """Build a model with the heads of its pretraining and random weights."""
    shape = {name: size[name] for name in ("width", "feedforward", "heads", "layers")}
    if size["kind"] == "electra":
        config = ElectraConfig(**shape, dropout=dropout, embedding_width=size["embedding"], generator_size=size["generator"])
        return Electra(config, size["vocab"])
    if size["kind"] == "gpt":
        return ModelWithHeads(Gpt(GptConfig(**shape, dropout=dropout, max_positions=max_positions), size["vocab"]), [])
    if size["kind"] == "xlnet":
        return ModelWithHeads(Xlnet(XlnetConfig(**shape, dropout=dropout), size["vocab"]), ["language_model"])
    if size["kind"] == "elmo":
        return _elmo(size, dropout)
    if size["kind"] == "t5":
        layers = {"encoder_layers": shape.pop("layers"), "decoder_layers": size["decoder_layers"]}
        head_width = size["width"] // size["heads"]
        t5_config = T5Config(**shape, **layers, head_width=head_width, dropout=dropout, **VERSION_1_1)
        return T5(t5_config, size["vocab"], size["vocab"])
    return ModelWithHeads(Bert(BertConfig(**shape, dropout=dropout), size["vocab"]), ["masked"])


def _elmo(size: dict[str, Any], dropout: float) -> ModelWithHeads:
    """Build an ELMo whose words have random letters; pretraining does not train the weighted sum of its layers."""
    shape = {"width": size["width"], "lstm_width": size["feedforward"], "layers": size["layers"]}
    config = ElmoConfig(**{**ELMOS["small"], **shape, "character_width": size["embedding"], "dropout": dropout})
    elmo = Elmo(config, size["vocab"])
    elmo.embedding.token_embedding.set_vocabulary(character_ids(spellings(size["vocab"], seed=1), config.max_characters))
    elmo.mix.requires_grad_(False)
    return ModelWithHeads(elmo, ["bidirectional"])


def count_parameters(size: dict[str, Any], length: int) -> int:
    """Count the parameters of a model for texts of `length` tokens."""
    with shapes_only():
        weights = build_model(size, max_positions=length).parameters()
        return sum(weight.numel() for weight in weights if weight.is_floating_point())  # and not the letters of an ELMo's words


def build_objective(job: Any) -> PretrainingObjective:
    if job.size["kind"] == "gpt":
        return CausalLanguageModelling(CausalConfig(), [1] * job.size["vocab"])
    if job.size["kind"] == "elmo":
        return BidirectionalLanguageModelling(BidirectionalConfig(), unknown=job.mask_token)
    if job.size["kind"] == "t5":
        return SpanCorruption(SpansConfig(), job.bos, job.eos, list(range(job.size["vocab"] - SENTINELS, job.size["vocab"])))
    vocabulary = MaskingVocabulary(job.size["vocab"], job.first, job.mask_token, (job.pad, job.bos, job.eos))
    if job.size["kind"] == "xlnet":
        return PermutationLanguageModelling(PermutationConfig(), vocabulary)
    if job.size["kind"] == "electra":
        return ReplacedTokenDetection(ReplacedConfig(rate=job.masked), vocabulary)
    return MaskedLanguageModelling(MaskedConfig(rate=job.masked), vocabulary)


def documents_of(job: Any) -> Documents:
    """Return each text as a document of one sentence, and each token as a word."""
    count, length = job.documents.shape
    ends = np.arange(1, count + 1) * length
    flags = np.full(job.documents.size, BEGINS_WORD | BEGINS_UNIT, dtype=np.uint8)
    sentences = TokenTexts(np.full(count, length, dtype=np.int64), np.arange(1, count + 1))
    return Documents(TokenTexts(job.documents.reshape(-1), ends), sentences, TokenTexts(flags, ends))


def pretraining_trainer(job: Any) -> PausedTrainer:
    """Build the trainer that `qkv train` builds for a recipe with these documents."""
    objective, tokens = build_objective(job), job.rows * job.length
    batches = objective.batches(
        documents_of(job), np.arange(len(job.documents)),
        TextBatchSettings(job.seed, tokens, job.length, job.bos, job.eos, job.pad, fixed_shape=job.device == "cuda"),
    )  # fmt: skip
    torch.manual_seed(job.seed)
    model = build_model(job.size, job.dropout, job.length).to(job.device)
    trainer = build_trainer(job, model, objective, batches, tokens)
    trainer.tokens_per_update = tokens  # as of all others: a T5's batch counts its targets
    return trainer


def make(job: Any) -> TrainingLoop:
    return (BareUpdates if job.options.get("bare") else TrainingLoop)(job, pretraining_trainer(job))
