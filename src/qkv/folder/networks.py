"""The networks in a run's folder: an encoder with its heads, or a translator's model, built with saved weights."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from qkv.base.errors import CheckpointError, ConfigError
from qkv.data.corpora import Tokenizers
from qkv.folder.run import CONFIG, known, newest_weights, read_run
from qkv.models.electra import ElectraConfig
from qkv.parts.encoder import EncoderConfig
from qkv.parts.heads import ENCODER, ModelWithHeads
from qkv.recipes import PretrainingRecipe, Recipe, TranslationRecipe
from qkv.recipes.build import ENCODERS, make_translator
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import load_weights, set_weights

HEADS = "heads"
GENERATOR, DISCRIMINATOR = "generator", "discriminator"  # an ELECTRA's two networks
EMBEDDING = "embedding."  # which they share: weights are kept once, with the discriminator
# What those without a head that is asked for can do.
INSTEAD = {"causal": "; use qkv generate", "bidirectional": "; use qkv embed, or qkv evaluate --pairs"}


class SavedNetwork(NamedTuple):
    """An encoder and its heads as they are saved: config, weights and the names of the labels that it predicts."""

    config: EncoderConfig
    weights: dict[str, dict[str, Tensor]]  # the encoder's under "encoder", each head's under its name in parts/heads.py
    label_names: tuple[str, ...] = ()  # of the head "classes" or "tags", in the order of its outputs

    @property
    def vocab_size(self) -> int:
        return len(self.weights[ENCODER]["embedding.words.weight"])

    def empty_model(self) -> ModelWithHeads:
        """Build the model on the meta device: the sizes of its weights are those of the saved ones."""
        labels = next((len(self.weights[head]["output.weight"]) for head in ("classes", "tags") if head in self.weights), 2)
        with torch.device("meta"):
            encoder = ENCODERS[self.config.kind](self.config, self.vocab_size)
            return ModelWithHeads(encoder, [name for name in self.weights if name != ENCODER], labels)

    def model(self) -> ModelWithHeads:
        """Build the model with the saved weights, in evaluation mode."""
        model = self.empty_model().to_empty(device="cpu")  # drawing initial weights would be wasted time
        model.load(self.weights)
        return model.eval()


class EncoderRun(NamedTuple):
    """What is in the folder of an encoder's run."""

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    network: SavedNetwork  # the encoder that the run was for, with its heads
    generator: SavedNetwork | None = None  # of an ELECTRA that was trained here
    trained_length: int | None = None  # tokens of the longest text it was trained on; None where nobody knows

    def with_head(self, name: str, use: str) -> SavedNetwork:
        """The network with that head; refused if there is none."""
        for network in (self.network, self.generator):
            if network is not None and name in network.weights:
                return network
        has = ", ".join(part for part in self.network.weights if part != ENCODER) or "none"
        instead = INSTEAD.get(self.recipe.objective.kind, "")
        raise ConfigError(f"{self.folder}: {use} needs the head {name!r}; this run's heads are: {has}{instead}")


def read_encoder(run: Path) -> EncoderRun:
    """An encoder's run, as of its newest weights."""
    recipe, tokenizers = read_run(run)
    model = recipe.model
    if not isinstance(model, EncoderConfig):
        what = "a t5, from text to text" if recipe.model.kind == "t5" else "a translator"
        use = "fill" if recipe.objective.kind == "spans" else "translate"
        raise ConfigError(f"{run} is {what}, not an encoder; use qkv {use}")
    weights = newest_weights(run)
    network, generator = networks_of(model, load_weights(weights), str(weights))
    network = network._replace(label_names=_labels(run, network))
    return EncoderRun(run, recipe, tokenizers.source, network, generator, trained_length_of(run))


def trained_length_of(run: Path) -> int | None:
    """Tokens of the longest text that a run was trained on; None where nobody knows, as of one that was imported."""
    length = known(run, "trained_length")
    return length if isinstance(length, int) else None


def _labels(run: Path, network: SavedNetwork) -> tuple[str, ...]:
    """The names of what the head of a fine-tuned model tells apart; none where it has no names for them."""
    head = next((network.weights[name] for name in ("classes", "tags") if name in network.weights), None)
    names = tuple(map(str, known(run, "labels") or ()))
    if names and (head is None or len(names) != len(head["output.weight"])):
        raise CheckpointError(f"{run / CONFIG}: {len(names)} labels, which are not those of the weights; put the right file back")
    return names


def networks_of(c: EncoderConfig, weights: dict[str, Tensor], where: str) -> tuple[SavedNetwork, SavedNetwork | None]:
    """The network that named weights are, and an ELECTRA's generator beside it where there is one."""
    if not isinstance(c, ElectraConfig) or not any(name.startswith(f"{DISCRIMINATOR}.") for name in weights):
        return SavedNetwork(c, _parts(weights, "", where)), None
    first, second = (_parts(weights, f"{name}.", where) for name in (DISCRIMINATOR, GENERATOR))
    shared = {name: weight for name, weight in first[ENCODER].items() if name.startswith(EMBEDDING)}
    second[ENCODER] = {**shared, **second[ENCODER]}
    return SavedNetwork(c, first), SavedNetwork(c.of_generator(), second)


def _parts(weights: dict[str, Tensor], prefix: str, where: str) -> dict[str, dict[str, Tensor]]:
    """Weights by part, as Headed gives them: from encoder.x and heads.masked.x."""
    found: dict[str, dict[str, Tensor]] = {ENCODER: {}}
    for name, weight in weights.items():
        if name.startswith(prefix):
            part, _, rest = name.removeprefix(prefix).partition(".")
            if part == HEADS:
                part, _, rest = rest.partition(".")
            found.setdefault(part, {})[rest] = weight
    if prefix != f"{GENERATOR}." and f"{EMBEDDING}words.weight" not in found[ENCODER]:
        raise CheckpointError(f"{where}: no encoder's weights; is this the run folder of an encoder?")
    return found


def named_weights(network: SavedNetwork) -> dict[str, Tensor]:
    """The inverse of `networks_of` for one network: named as in the model itself."""
    return {
        f"{ENCODER if part == ENCODER else f'{HEADS}.{part}'}.{name}": weight
        for part, weights in network.weights.items()
        for name, weight in weights.items()
    }


def load_model(weights: Path, recipe: TranslationRecipe[Any] | PretrainingRecipe[Any, Any], tokenizers: Tokenizers) -> nn.Module:
    """Build the model of a translator's or a T5's recipe with the weights in a file, in evaluation mode."""
    found = load_weights(weights)
    # The vocabulary of an imported T5 may be larger than its tokenizer's.
    words = len(found["target_embedding.weight"]) if recipe.model.kind == "t5" else None
    model = make_translator(recipe, tokenizers, words)
    set_weights(model, found, str(weights))
    return model.eval()
