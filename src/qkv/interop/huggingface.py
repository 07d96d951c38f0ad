"""Models to and from Hugging Face transformers: BERT, ALBERT, ELECTRA, ERNIE, with their heads; GPTs (huggingface_gpt.py); XLNets
(huggingface_xlnet.py).

`from_huggingface` and `to_huggingface` turn the one's config and weights into the other's; nothing of transformers is imported.
What is not carried over: the dropout of attention probabilities and of classifiers, which
are not in our configs (written as none, and as the model's own), and tokens' numbers, which belong to the tokenizer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.networks import SavedNetwork
from qkv.interop.huggingface_checks import activation_of, check_class, check_options, check_shape, weight_in
from qkv.interop.huggingface_folder import CONFIG, read_folder, told_of, write_folder
from qkv.interop.huggingface_gpt import CLASSES as GPTS
from qkv.interop.huggingface_gpt import gpt_from, gpt_to
from qkv.interop.huggingface_names import ACTIVATION, ENCODERS, KINDS, NOTHING_NEW, OPTIONS, WITHOUT, pairs
from qkv.interop.huggingface_xlnet import KIND as XLNET
from qkv.interop.huggingface_xlnet import xlnet_from, xlnet_to
from qkv.models.albert import AlbertConfig
from qkv.models.ernie import ErnieConfig
from qkv.models.gpt import GptConfig
from qkv.models.xlnet import XlnetConfig
from qkv.parts.encoder import EncoderConfig
from qkv.parts.heads import ENCODER

MOST_LAYERS = 1000
MANY_LABELS = "multi_label_classification"


def from_huggingface(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> SavedNetwork:
    """What a config.json and the weights beside it are here; heads are found by the weights that there are."""
    if config.get("model_type") in GPTS:
        gpt, inside = gpt_from(config, weights)
        _check_whole(gpt, {ENCODER: inside})
        return SavedNetwork(gpt, {ENCODER: inside})
    if config.get("model_type") == XLNET:
        xlnet, found = xlnet_from(config, weights)
        _check_whole(xlnet, found)
        output = next((found[head]["output.weight"] for head in ("classes", "tags") if head in found), None)
        return SavedNetwork(xlnet, found, () if output is None else _label_names(config, len(output)))
    c = config_from(config)
    given = _with_plain_names(weights, config["model_type"])
    _check_tied(given, config["model_type"])
    classifier = _classifier(config, given)
    found = {ENCODER: {}}
    used = set()
    for part, ours, theirs in pairs(c):
        if part in ("classes", "tags") and part != classifier:
            continue
        for end in ("", ".weight", ".bias"):
            names = [name + end for name in theirs]
            if given.keys() & names:
                used.update(names)
                found.setdefault(part, {})[ours + end] = torch.cat([weight_in(given, name) for name in names])
    unknown = sorted(name for name in given.keys() - used if not name.endswith(NOTHING_NEW))
    if unknown:
        raise CheckpointError(f"{unknown[0]} and {len(unknown) - 1} more weights are none that a {c.kind} has here")
    if classifier and "output.weight" not in found.get(classifier, {}):
        raise CheckpointError("the weights lack those of the classifier; the checkpoint is not whole")
    _check_whole(c, found)
    return SavedNetwork(c, found, _label_names(config, len(found[classifier]["output.weight"])) if classifier else ())


def config_from(config: Mapping[str, Any]) -> EncoderConfig:
    """Our config for one of theirs; what we do not have is refused."""
    kind = str(config.get("model_type"))
    if kind not in ENCODERS:
        raise ConfigError(f"model_type {kind!r} in {CONFIG} is not one of {', '.join([*ENCODERS, *GPTS, XLNET, 't5', 'marian'])}")
    check_options(config, WITHOUT, kind)
    if config.get("problem_type") == MANY_LABELS:
        raise ConfigError(f"problem_type={MANY_LABELS!r} in {CONFIG}: qkv's {kind} gives a text one label, not several")
    values = {ours: config.get(theirs, usual) for ours, (theirs, usual) in OPTIONS[kind].items()}
    values["activation"] = activation_of("hidden_act", values["activation"], ACTIVATION)
    if kind == "ernie" and not config.get("use_task_id", False):
        values["task_types"] = 0
    made = parse(ENCODERS[kind][0], {"kind": kind, **values}, CONFIG)
    if made.layers > MOST_LAYERS:
        raise ConfigError(f"num_hidden_layers={made.layers} in {CONFIG} is more than any model has; download it again")
    return made


def _with_plain_names(weights: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Names as transformers gives them today to a model with heads."""
    # SavedNetworks that came from TensorFlow call a norm's weight and bias gamma and beta; a bare encoder's have no prefix.
    plain = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): weight
        for name, weight in weights.items()
    }
    if not any(name.startswith(f"{kind}.") for name in plain):
        plain = {f"{kind}.{name}": weight for name, weight in plain.items()}
    for name in [name for name in plain if name.endswith("predictions.decoder.bias")]:
        plain.setdefault(name.replace("decoder.bias", "bias"), plain[name])
    return plain


def _check_tied(given: Mapping[str, Tensor], kind: str) -> None:
    """Refuse an output over words that is not the word embedding."""
    words = given.get(f"{kind}.embeddings.word_embeddings.weight")
    for name, weight in given.items():
        if name.endswith(("predictions.decoder.weight", "lm_head.weight")) and not (
            words is not None and torch.equal(weight, words)
        ):
            raise CheckpointError(f"{name} is not the word embedding; qkv's masked-word head has no output weights of its own")


def _classifier(config: Mapping[str, Any], given: Mapping[str, Tensor]) -> str | None:
    """Whether the weights called classifier tell texts or tokens apart: the name of our head."""
    kind, (name, *_) = config["model_type"], config.get("architectures") or [None]
    check_class(config, [kind.capitalize() + end for end, _ in KINDS])
    if not any(weight.startswith("classifier.") for weight in given):
        return None
    if name is not None and name.endswith(("ForSequenceClassification", "ForTokenClassification")):
        return "classes" if name.endswith("ForSequenceClassification") else "tags"
    return "classes" if "classifier.dense.weight" in given or any(".pooler." in weight for weight in given) else "tags"


def _check_whole(c: Any, found: dict[str, dict[str, Tensor]]) -> None:
    """Compare with a model of this shape, made of sizes alone."""
    if "embedding.words.weight" not in found[ENCODER]:
        raise CheckpointError("the weights lack the word embeddings; the checkpoint is not whole")
    wanted = SavedNetwork(c, found).empty_model().weights()
    for part, weights in wanted.items():
        for name, weight in weights.items():
            if name not in found[part]:
                raise CheckpointError(f"the weights lack what is {part}.{name} here; the checkpoint is not whole")
            check_shape(f"{part}.{name}", found[part][name], weight)


def _label_names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Names of labels by their numbers, which JSON has made text of; transformers' own where there are none."""
    given = config.get("id2label") or {}
    if not isinstance(given, dict):
        raise CheckpointError(f"id2label in {CONFIG} is not names by number; the file is damaged")
    named = {str(number): str(name) for number, name in given.items()}
    names = tuple(named.get(str(number), f"LABEL_{number}") for number in range(count))
    if named and named != {str(number): name for number, name in enumerate(names)}:
        raise CheckpointError(
            f"id2label in {CONFIG} has {len(named)} labels, the weights are for {count}; they do not belong together"
        )
    return names


def to_huggingface(checkpoint: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and weights for transformers; the class is chosen by the heads there are."""
    c, weights, labels = checkpoint
    kind = c.kind
    if kind in ("unilm", "elmo", "t5-encoder"):
        raise ConfigError(f"transformers has no {kind}; use it with qkv")
    if isinstance(c, XlnetConfig):
        config, made = xlnet_to(c, weights)
        return {**config, **_labels(weights, labels)}, made
    if c.positions != "learned":
        raise ConfigError(
            f"model.positions={c.positions} cannot be written for transformers, whose {kind} has learned ones alone; "
            "use it with qkv, or train one with model.positions=learned"
        )
    if c.attention.kind != "full":
        raise ConfigError(
            f"model.attention={c.attention.kind} cannot be written for transformers, whose {kind} has full attention alone; "
            "use it with qkv, or train one with model.attention=full"
        )
    if isinstance(c, GptConfig) and weights.keys() > {ENCODER}:
        raise ConfigError("transformers' GPTs have no heads such as these; export the run that this one was fine-tuned from")
    if isinstance(c, GptConfig):
        return gpt_to(c, weights[ENCODER])
    end = _kind_of(kind, weights)
    made = {}
    for part, ours, theirs in pairs(c):
        for suffix in ("", ".weight", ".bias"):
            weight = weights.get(part, {}).get(ours + suffix)
            if weight is not None:
                pieces = weight.detach().cpu().chunk(len(theirs))
                made |= {name + suffix: piece.contiguous().clone() for name, piece in zip(theirs, pieces, strict=True)}
    if end == "Model":
        made = {name.removeprefix(f"{kind}."): weight for name, weight in made.items()}
    words = len(weights[ENCODER]["embedding.words.weight"])
    config = {"architectures": [kind.capitalize() + end], "vocab_size": words, **_options(c), **_labels(weights, labels)}
    return config, made


def _kind_of(kind: str, weights: Mapping[str, Any]) -> str:
    """The end of the name of transformers' class that has these heads."""
    if {"classes", "tags"} <= weights.keys():
        raise ConfigError("transformers has no model with a head for texts and one for tokens; write one of classes and tags")
    if weights.keys() & {"classes", "relation"} and "pooler" not in weights:
        raise ConfigError("a head over whole texts reads what a pooler makes; write the head pooler with it")
    if kind == "electra" and "relation" in weights:
        raise ConfigError("transformers' electra has no head for the relation of two segments; leave it out")
    return next(end for end, heads in KINDS if weights.keys() >= set(heads))


def _options(c: EncoderConfig) -> dict[str, Any]:
    kind = c.kind
    values = {theirs: getattr(c, ours) for ours, (theirs, _) in OPTIONS[kind].items()}
    values["hidden_act"] = next(theirs for theirs, ours in ACTIVATION.items() if ours == c.activation)
    values |= {"model_type": kind, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02}
    if isinstance(c, AlbertConfig):
        values |= {"num_hidden_groups": c.groups if c.sharing == "all" else c.layers, "inner_group_num": 1}
        values["classifier_dropout_prob"] = c.dropout
    if isinstance(c, ErnieConfig):
        values |= {"use_task_id": c.task_types > 0, "task_type_vocab_size": max(1, c.task_types)}
    return values


def _labels(weights: Mapping[str, Mapping[str, Tensor]], labels: tuple[str, ...]) -> dict[str, Any]:
    head = next((weights[name] for name in ("classes", "tags") if name in weights), None)
    if head is None:
        return {}
    count = len(head["output.weight"])
    names = dict(enumerate(labels or (f"LABEL_{number}" for number in range(count))))
    if len(names) != count or len(set(names.values())) != count:
        raise ConfigError(f"{count} labels need {count} different names, got {', '.join(names.values())}")
    # Of a single number their pipeline would otherwise show the sigmoid.
    told = {"problem_type": "regression"} if count == 1 and "classes" in weights else {}
    return {"id2label": names, "label2id": {name: number for number, name in names.items()}, **told}


def read_huggingface(folder: Path) -> SavedNetwork:
    """The model in a folder that transformers wrote, or that was downloaded: config.json and safetensors."""
    config, weights = read_folder(folder)
    with told_of(folder):
        return from_huggingface(config, weights)


def write_huggingface(checkpoint: SavedNetwork, folder: Path, beside: Mapping[str, str] | None = None, **more: Any) -> None:
    """Write a folder that `from_pretrained` loads, in place of an older one.

    `beside` are texts to add, such as tokenizer.json; `more` is what else config.json is to say.
    """
    config, weights = to_huggingface(checkpoint)
    write_folder(folder, {**config, **more}, weights, beside)
