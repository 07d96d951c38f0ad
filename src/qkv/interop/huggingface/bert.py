"""BERT from and to transformers. ALBERT, ELECTRA and ERNIE have most of its names and options, and say where they differ."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface.encoder import EncoderFamily, check_tied, saved_network, write_label_names
from qkv.interop.huggingface.options import CONFIG, Options, check_class, check_fixed, read_options, write_options
from qkv.interop.huggingface.weights import (
    WeightPair,
    module_pairs,
    read_weights,
    refuse_unknown,
    write_weights,
)
from qkv.models.bert import BertConfig
from qkv.parts.encoder import EncoderConfig
from qkv.parts.heads import ENCODER

OPTIONS: Options = {
    "width": ("hidden_size", 768),
    "feedforward": ("intermediate_size", 3072),
    "heads": ("num_attention_heads", 12),
    "layers": ("num_hidden_layers", 12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "activation": ("hidden_act", "gelu"),
    "max_positions": ("max_position_embeddings", 512),
    "segments": ("type_vocab_size", 2),
    "epsilon": ("layer_norm_eps", 1e-12),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_python_tanh": "gelu-tanh",
    "relu": "relu",
    "tanh": "tanh",
}
# Options without a counterpart here, each with the value that changes nothing.
FIXED: dict[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "inner_group_num": 1,
    "num_memory_blocks": 0,
    "pruned_heads": {},
}
# The ends of transformers' class names, and the heads that each class has; a model is written as the first class that fits.
CLASSES: list[tuple[str, tuple[str, ...]]] = [
    ("ForSequenceClassification", ("classes",)),
    ("ForTokenClassification", ("tags",)),
    ("ForQuestionAnswering", ("span",)),
    ("ForPreTraining", ("replaced",)),
    ("ForPreTraining", ("masked", "sentence_task")),
    ("ForNextSentencePrediction", ("sentence_task",)),
    ("ForMaskedLM", ("masked",)),
    ("Model", ()),
]
# Weights that hold nothing new: position ids, an output that is the word embedding, unused task types.
IGNORED = (
    "position_ids",
    "token_type_ids",
    "decoder.weight",
    "decoder.bias",
    "lm_head.weight",
    "task_type_embeddings.weight",
)
MOST_LAYERS = 1000
MULTI_LABEL = "multi_label_classification"


class BertFamily(EncoderFamily):
    """BERT (Devlin et al. 2019)."""

    kind: ClassVar[str] = "bert"
    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    config: ClassVar[type[EncoderConfig]] = BertConfig
    options: ClassVar[Options] = OPTIONS

    def read_config(self, config: Mapping[str, Any]) -> EncoderConfig:
        """Return our config for a config.json."""
        check_fixed(config, FIXED, self.kind)
        if config.get("problem_type") == MULTI_LABEL:
            raise ConfigError(f"problem_type={MULTI_LABEL!r} in {CONFIG}: qkv's {self.kind} gives a text one label, not several")
        values = {"kind": self.kind, **read_options(config, self.options, ACTIVATIONS), **self.read_more(config)}
        c = parse(self.config, values, CONFIG)
        if c.layers > MOST_LAYERS:
            raise ConfigError(f"num_hidden_layers={c.layers} in {CONFIG} is more than any model has; download it again")
        return c

    def read_more(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of our config that need more than the table of options."""
        return {}

    def write_more(self, c: Any) -> dict[str, Any]:
        """Return the values of a config.json that need more than the table of options."""
        return {}

    def read_network(self, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> SavedNetwork:
        """Convert a config.json and the weights beside it; the weights tell which heads there are."""
        c = self.read_config(config)
        given = self._with_current_names(weights)
        words = given.get(f"{self.kind}.embeddings.word_embeddings.weight")
        for name, weight in given.items():
            if name.endswith(("predictions.decoder.weight", "lm_head.weight")):
                check_tied(name, weight, words, self.kind)
        classifier = self._classifier(config, given)
        pairs = [pair for pair in self.pairs(c) if pair.part not in ("classes", "tags") or pair.part == classifier]
        found = read_weights(given, pairs)
        refuse_unknown(given, self.kind, IGNORED)
        if classifier and "output.weight" not in found.get(classifier, {}):
            raise CheckpointError("the weights lack those of the classifier; the checkpoint is not whole")
        return saved_network(config, c, found)

    def _with_current_names(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights with the names that transformers gives them today in a model with heads."""
        # Checkpoints that came from TensorFlow call a norm's weight and bias gamma and beta; a bare encoder's have no prefix.
        given = {
            name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): weight
            for name, weight in weights.items()
        }
        if not any(name.startswith(f"{self.kind}.") for name in given):
            given = {f"{self.kind}.{name}": weight for name, weight in given.items()}
        for name in [name for name in given if name.endswith("predictions.decoder.bias")]:
            given.setdefault(name.replace("decoder.bias", "bias"), given[name])
        return given

    def _classifier(self, config: Mapping[str, Any], given: Mapping[str, Tensor]) -> str | None:
        """Return the name of our head for the weights called classifier, which label texts or tokens."""
        check_class(config, [self.kind.capitalize() + end for end, _ in CLASSES])
        (name, *_) = config.get("architectures") or [""]
        if not any(weight.startswith("classifier.") for weight in given):
            return None
        if name.endswith(("ForSequenceClassification", "ForTokenClassification")):
            return "classes" if name.endswith("ForSequenceClassification") else "tags"
        return "classes" if "classifier.dense.weight" in given or any(".pooler." in weight for weight in given) else "tags"

    def write_network(self, network: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return config.json and weights for transformers; the heads choose the class."""
        c, heads = network.config, network.weights.keys()
        self.check(c)
        if {"classes", "tags"} <= heads:
            raise ConfigError("transformers has no model with a head for texts and one for tokens; write one of classes and tags")
        if heads & {"classes", "sentence_task"} and "pooler" not in heads:
            raise ConfigError("a head over whole texts reads the output of a pooler; write the head pooler with it")
        end = next(end for end, needed in CLASSES if heads >= set(needed))
        written = write_weights(network.weights, self.pairs(c))
        if end == "Model":
            written = {name.removeprefix(f"{self.kind}."): weight for name, weight in written.items()}
        config = {
            "architectures": [self.kind.capitalize() + end],
            "model_type": self.kind,
            "vocab_size": network.vocab_size,
            "attention_probs_dropout_prob": 0.0,
            "initializer_range": 0.02,
            **write_options(c, self.options, ACTIVATIONS),
            **self.write_more(c),
            **write_label_names(network),
        }
        return config, written

    def pairs(self, c: Any) -> Iterator[WeightPair]:
        """Pair all weights that a model of this shape may have, encoder and heads."""
        for ours, *theirs in (*self.embedding_modules(c), *self.layer_modules(c)):
            yield from module_pairs(ours, *(f"{self.kind}.{name}" for name in theirs), part=ENCODER)
        for part, ours, name in self.head_modules():
            yield from module_pairs(ours, name, part=part)
        # Of the masked-word head, whose output is the word embedding.
        yield WeightPair("bias", (f"{self.output_bias}.bias",), "masked")

    output_bias: ClassVar[str] = "cls.predictions"

    def embedding_modules(self, c: Any) -> Iterator[tuple[str, ...]]:
        """Yield modules of the embedding: ours, and theirs after the kind."""
        yield "embedding.token_embedding", "embeddings.word_embeddings"
        yield "embedding.positions.table", "embeddings.position_embeddings"
        yield "embedding.segment_embedding", "embeddings.token_type_embeddings"
        yield "embedding.norm", "embeddings.LayerNorm"

    def layer_modules(self, c: Any) -> Iterator[tuple[str, ...]]:
        """Yield modules of the layers: ours, and those of theirs that are stacked in it, after the kind."""
        for number in range(c.layers):
            ours, theirs = f"layers.{number}.", f"encoder.layer.{number}."
            yield ours + "attention.qkv", *(f"{theirs}attention.self.{name}" for name in ("query", "key", "value"))
            yield ours + "attention.out", theirs + "attention.output.dense"
            yield ours + "around_attention.norm", theirs + "attention.output.LayerNorm"
            yield ours + "feedforward.up", theirs + "intermediate.dense"
            yield ours + "feedforward.down", theirs + "output.dense"
            yield ours + "around_feedforward.norm", theirs + "output.LayerNorm"

    def head_modules(self) -> Iterator[tuple[str, str, str]]:
        """Yield modules of heads: the head, our module, and theirs."""
        yield "tags", "output", "classifier"
        yield "span", "output", "qa_outputs"
        yield "classes", "output", "classifier"
        yield "masked", "dense", "cls.predictions.transform.dense"
        yield "masked", "norm", "cls.predictions.transform.LayerNorm"
        yield "pooler", "dense", f"{self.kind}.pooler.dense"
        yield "sentence_task", "output", "cls.seq_relationship"
