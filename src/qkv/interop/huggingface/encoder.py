"""Encoders and GPTs, one network with heads, from and to transformers: all that does not depend on the family.

The dropout of attention probabilities and of classifiers is not carried over: our configs do not have it, and a config.json says
none of the former and the model's own of the latter. Token ids belong to the tokenizer.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError
from qkv.data.corpora import Tokenizers
from qkv.folder.networks import NetworkRun, SavedNetwork, named_weights, read_network_run
from qkv.interop.huggingface.family import HuggingFaceCheckpoint, ImportedRun, check_vocabulary, imported_recipe, readme
from qkv.interop.huggingface.folder import prefix_errors
from qkv.interop.huggingface.options import CONFIG
from qkv.interop.huggingface.tokenizer import Template, tokenizer_files
from qkv.interop.huggingface.weights import WeightPair, Weights, check_weights
from qkv.parts.heads import ENCODER
from qkv.recipes import Recipe
from qkv.text.pretrained_tokenizer import load_pretrained_tokenizer

DISCRIMINATOR, GENERATOR = "discriminator", "generator"  # the networks of an ELECTRA
CLASSIFIERS = ("classes", "tags")  # heads whose outputs have names
FINETUNED_FOR = {"classes": "classification", "tags": "tagging", "span": "answering"}  # by head


class EncoderFamily(ABC):
    """A family whose checkpoints are an encoder or a GPT, perhaps with heads."""

    kind: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]
    pretrained_for: ClassVar[str] = "masked"  # the objective of an imported model without a fine-tuned head
    pretraining_length: ClassVar[int | None] = 128  # tokens of its passages in further pretraining; None is its positions
    template: ClassVar[Template] = "encoder"  # what its tokenizer puts around texts
    readme: ClassVar[str] = "encoder"

    @abstractmethod
    def read_network(self, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> SavedNetwork:
        """Convert a config.json and the weights beside it; the weights tell which heads there are."""

    @abstractmethod
    def write_network(self, network: SavedNetwork) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return config.json and weights for transformers; the heads choose the class."""

    @abstractmethod
    def pairs(self, c: Any) -> Iterator[WeightPair]:
        """Pair all weights that a model of this shape may have, encoder and heads."""

    def problem(self, c: Any) -> str | None:
        """Return why a model with this config cannot be written for transformers; None where it can."""
        if c.positions != "learned":
            return f"transformers' {self.kind} has no model.positions={c.positions}, only learned ones"
        if c.attention.kind != "full":
            return f"transformers' {self.kind} has no model.attention={c.attention.kind}, only full attention"
        return None

    def check(self, c: Any) -> None:
        """Refuse a model that cannot be written for transformers."""
        if problem := self.problem(c):
            raise ConfigError(f"{problem}; use it with qkv")

    def import_run(self, folder: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> ImportedRun:
        """Convert a checkpoint; the folder holds its tokenizer."""
        with prefix_errors(folder):
            network = self.read_network(config, weights)
        tokenizer = load_pretrained_tokenizer(folder, causal=self.template == "prompt")
        check_vocabulary(folder, tokenizer, network.vocab_size)
        heads = tuple(part for part in network.weights if part != ENCODER)
        about = {"labels": network.label_names}
        recipe = self._recipe(folder, network)
        return ImportedRun(recipe, Tokenizers(tokenizer, tokenizer), named_weights(network), heads, about)

    def _recipe(self, folder: Path, network: SavedNetwork) -> Recipe:
        c, text = network.config, [f"imported from {folder.resolve().name}"]
        objective = next((task for head, task in FINETUNED_FOR.items() if head in network.weights), None)
        if objective == "classification" and len(network.weights["classes"]["output.weight"]) == 1:
            objective = "regression"
        if objective is None:
            length = min(self.pretraining_length or c.max_positions, c.max_positions)
            objective, data = self.pretrained_for, {"text": text, "length": length}
        else:
            data = {"train": text, "dev": text, "length": c.max_positions}
        return imported_recipe(folder, c, data, tokenizer={"file": "tokenizer.json"}, objective={"kind": objective})

    def export_run(self, run: Path, part: str | None) -> HuggingFaceCheckpoint:
        """Convert a run of one network, or one of the two of an ELECTRA."""
        found = read_network_run(run)
        network = _network(found, part)
        c, tokenizer = network.config, found.tokenizer
        # The model learned nothing of positions beyond its training texts, whether it has a limit or none.
        length = min(c.longest or found.trained_length or c.max_positions, found.trained_length or c.max_positions)
        config, weights = self.write_network(network)
        config["pad_token_id"] = tokenizer.pad
        if self.template == "prompt":
            config |= {"bos_token_id": tokenizer.bos, "eos_token_id": tokenizer.eos}
        files = {**tokenizer_files(tokenizer, length, self.template), **readme(self.readme)}
        known = {pair.part for pair in self.pairs(c)}
        left_out = [f"the head {head}, which transformers does not have" for head in network.weights if head not in known]
        if part is None and found.generator is not None:
            left_out.append(f"the {GENERATOR}, which --part {GENERATOR} writes")
        return HuggingFaceCheckpoint(config, weights, files, found.weights_file, tuple(left_out))


def _network(run: NetworkRun, part: str | None) -> SavedNetwork:
    """Return the network of a run that is to be exported."""
    if part not in (None, GENERATOR, DISCRIMINATOR):
        raise ConfigError(f"no part {part!r} to export; an ELECTRA has generator and discriminator")
    if part is not None and run.generator is None:
        raise ConfigError(f"{run.folder} is one network, it has no {part}; leave --part out")
    return run.generator if part == GENERATOR and run.generator is not None else run.network


def saved_network(config: Mapping[str, Any], c: Any, found: Weights) -> SavedNetwork:
    """Return a converted checkpoint after a check that its weights are complete and fit the config."""
    network = SavedNetwork(c, {ENCODER: {}, **found})
    if "embedding.token_embedding.weight" not in network.weights[ENCODER]:
        raise CheckpointError("the weights lack the word embeddings; the checkpoint is not whole")
    check_weights(_flat(network.weights), _flat(network.empty_model().weights()))
    classifier = next((found[head] for head in CLASSIFIERS if head in found), None)
    names = () if classifier is None else read_label_names(config, len(classifier["output.weight"]))
    return network._replace(label_names=names)


def _flat(weights: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{part}.{name}": weight for part, some in weights.items() for name, weight in some.items()}


def check_tied(output: str, weight: Tensor | None, words: Tensor | None, kind: str) -> None:
    """Refuse an output over the vocabulary that is not the word embedding."""
    if weight is not None and words is not None and not torch.equal(weight, words):
        raise CheckpointError(f"{output} is not the word embedding; qkv's {kind} has no output weights of its own")


def read_label_names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """Return the names of labels in the order of outputs; transformers' own names where a config.json gives none."""
    given = config.get("id2label") or {}
    if not isinstance(given, dict):
        raise CheckpointError(f"id2label in {CONFIG} does not map numbers to names; the file is damaged")
    named = {str(number): str(name) for number, name in given.items()}  # JSON has made strings of the numbers
    names = tuple(named.get(str(number), f"LABEL_{number}") for number in range(count))
    if named and named != {str(number): name for number, name in enumerate(names)}:
        raise CheckpointError(
            f"id2label in {CONFIG} has {len(named)} labels, the weights are for {count}; they do not belong together"
        )
    return names


def write_label_names(network: SavedNetwork) -> dict[str, Any]:
    """Return the entries of a config.json for the names of labels."""
    head = next((network.weights[name] for name in CLASSIFIERS if name in network.weights), None)
    if head is None:
        return {}
    count = len(head["output.weight"])
    names = dict(enumerate(network.label_names or (f"LABEL_{number}" for number in range(count))))
    if len(names) != count or len(set(names.values())) != count:
        raise ConfigError(f"{count} labels need {count} different names, got {', '.join(names.values())}")
    # Without a problem type, transformers' pipeline applies a sigmoid to a single number.
    problem = {"problem_type": "regression"} if count == 1 and "classes" in network.weights else {}
    return {"id2label": names, "label2id": {name: number for number, name in names.items()}, **problem}
