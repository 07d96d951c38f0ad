"""The networks in a run's folder, built with their saved weights: a network with its heads, or a translator."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.undrawn import shapes_only, undrawn_weights
from qkv.data.corpora import Tokenizers
from qkv.folder.adapters import BASE, check_base, started_from
from qkv.folder.run import CONFIG, WeightsFile, config_value, find_weights, read_recipe, read_run
from qkv.models import FAMILIES
from qkv.parts.adapters import merge_adapters
from qkv.parts.heads import ENCODER, ModelWithHeads
from qkv.recipes import Recipe
from qkv.recipes.abilities import require, verbs
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import digest_weights, load_weights, set_weights

HEADS = "heads"
EMBEDDING = "embedding."  # shared by networks that are pretrained together; what is shared is saved once, with the first of them


class SavedNetwork(NamedTuple):
    """The saved form of a network and its heads: config, weights and names of the labels that it predicts."""

    config: Any
    weights: dict[str, dict[str, Tensor]]  # the network's under "encoder", each head's under its name in parts/heads.py
    label_names: tuple[str, ...] = ()  # of the head "classes" or "tags", in the order of its outputs

    @property
    def vocab_size(self) -> int:
        return len(self.weights[ENCODER]["embedding.token_embedding.weight"])

    def empty_model(self) -> ModelWithHeads:
        """Build the model on the meta device: the sizes of its weights are those of the saved ones."""
        with shapes_only():
            return self._build()

    def model(self) -> ModelWithHeads:
        """Build the model with the saved weights, in evaluation mode."""
        with undrawn_weights():
            model = self._build()
        model.load(self.weights)
        return model.eval()

    def _build(self) -> ModelWithHeads:
        labels = next((len(self.weights[head]["output.weight"]) for head in ("classes", "tags") if head in self.weights), 2)
        heads = tuple(name for name in self.weights if name != ENCODER)
        return FAMILIES[self.config.kind].build_network(self.config, self.vocab_size, heads, labels)


class NetworkRun(NamedTuple):
    """The contents of the folder of a network with heads: an encoder or a GPT."""

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    network: SavedNetwork  # the network that the run trained, with its heads
    weights_file: WeightsFile
    generator: SavedNetwork | None = None  # an ELECTRA's, where it was pretrained here
    trained_length: int | None = None  # tokens of the longest text it was trained on; None for imported runs

    def model(self) -> ModelWithHeads:
        """Build the network with the saved weights, in evaluation mode."""
        return self.network.model()

    def with_head(self, name: str, use: str) -> SavedNetwork:
        """Return the network that has this head; raise ConfigError if none has it."""
        for network in (self.network, self.generator):
            if network is not None and name in network.weights:
                return network
        has = ", ".join(part for part in self.network.weights if part != ENCODER) or "none"
        *others, last = (f"qkv {verb}" for verb in verbs(self.recipe))
        raise ConfigError(
            f"{self.folder}: {use} needs the head {name!r}; this run's heads are: {has}; use {', '.join(others)} or {last}"
        )


def read_network_run(run: Path, step: int | None = None) -> NetworkRun:
    """Read the run of a network with heads (an encoder or a GPT), with its newest weights or those of a step's snapshot."""
    recipe, tokenizers = read_run(run)
    require(recipe, run, "encoder", "generator")
    weights = find_weights(run, recipe, step)
    network, generator = networks_in(recipe.model, load_weights(weights.path), str(weights.path))
    network = network._replace(label_names=_label_names(run, network))
    return NetworkRun(run, recipe, tokenizers.source, network, weights, generator, trained_length_of(run))


def trained_length_of(run: Path) -> int | None:
    """Return the tokens of the longest text that a run was trained on; None where it is not known (imported runs)."""
    length = config_value(run, "trained_length")
    return length if isinstance(length, int) else None


def _label_names(run: Path, network: SavedNetwork) -> tuple[str, ...]:
    """Return the names of a fine-tuned model's labels, if they have names."""
    head = next((network.weights[name] for name in ("classes", "tags") if name in network.weights), None)
    names = tuple(map(str, config_value(run, "labels") or ()))
    if names and (head is None or len(names) != len(head["output.weight"])):
        raise CheckpointError(
            f"{run / CONFIG}: {len(names)} labels, and the weights have another number; put the right file back"
        )
    return names


def networks_in(config: Any, weights: dict[str, Tensor], where: str) -> tuple[SavedNetwork, SavedNetwork | None]:
    """Return the network that named weights hold, and the one pretrained beside it (ELECTRA's generator), if any."""
    networks = FAMILIES[config.kind].networks
    if not networks or not any(name.startswith(f"{next(iter(networks))}.") for name in weights):
        return SavedNetwork(config, _by_part(weights, "", where)), None
    (first, first_config), (second, second_config) = networks.items()
    kept, beside = _by_part(weights, f"{first}.", where), _by_part(weights, f"{second}.", None)
    own = beside[ENCODER]  # empty where all weights are shared
    shared = {name: weight for name, weight in kept[ENCODER].items() if not own or name.startswith(EMBEDDING)}
    beside[ENCODER] = {**shared, **own}
    return SavedNetwork(first_config(config), kept), SavedNetwork(second_config(config), beside)


def _by_part(weights: dict[str, Tensor], prefix: str, where: str | None) -> dict[str, dict[str, Tensor]]:
    """Group weights named encoder.x and heads.masked.x by part, as ModelWithHeads does; `where` names them in the error."""
    found: dict[str, dict[str, Tensor]] = {ENCODER: {}}
    for name, weight in weights.items():
        if name.startswith(prefix):
            part, _, rest = name.removeprefix(prefix).partition(".")
            if part == HEADS:
                part, _, rest = rest.partition(".")
            found.setdefault(part, {})[rest] = weight
    if where is not None and not any(name.startswith(EMBEDDING) for name in found[ENCODER]):
        raise CheckpointError(f"{where}: no weights of a network with heads; give the run folder of an encoder or a GPT")
    return found


def named_weights(network: SavedNetwork) -> dict[str, Tensor]:
    """Name the weights of a network as in the model itself: the inverse of `networks_in`."""
    return {
        f"{ENCODER if part == ENCODER else f'{HEADS}.{part}'}.{name}": weight
        for part, weights in network.weights.items()
        for name, weight in weights.items()
    }


# Encoder-decoders


class TranslatorRun(NamedTuple):
    """The contents of the folder of a translator's run, or of a model that is pretrained as one (T5)."""

    folder: Path
    recipe: Any
    tokenizers: Tokenizers
    weights: dict[str, Tensor]
    weights_file: WeightsFile
    base_digest: str = ""  # of the base's weights, where an adapter's were merged with them

    @property
    def digest(self) -> str:
        """A hash of the files that the weights come from."""
        return digest_weights(self.weights_file.path) + self.base_digest

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokenizers.source

    @property
    def config(self) -> Any:
        return self.recipe.model

    def model(self, recipe: Any = None) -> Any:
        """Build the model with the saved weights, in evaluation mode.

        `recipe` replaces the run's own, for a run that starts here.
        """
        source, target = (len(tokenizer) for tokenizer in self.tokenizers)
        embedding = self.weights.get("target_embedding.weight")
        if embedding is not None and self.config.one_vocabulary:  # an imported T5's may be larger than its tokenizer's
            source = target = len(embedding)
        tokenizer = self.tokenizers.target
        build = FAMILIES[self.config.kind].translator
        assert build is not None
        model: Any = build((recipe or self.recipe).model, source, target, tokenizer.mask if tokenizer.has_mask else None)
        set_weights(model, self.weights, str(self.weights_file.path))
        return model.eval()


def read_translator_run(run: Path, base: Path | None = None, step: int | None = None) -> TranslatorRun:
    """Read the run of a translator, or of a model pretrained as one, with its newest weights or those of a step's snapshot.

    An adapter's weights are merged with those of its base: `base`, or by default the run that it started from.
    """
    found = _read_saved(run, step)
    c = found.config.adapter
    if c is None:
        return found
    base = base or started_from(run, found.recipe)
    check_base(run, found.recipe, base)
    weights = merge_adapters(_read_saved(base).weights, found.weights, c, str(found.weights_file.path))
    model = found.config.model_copy(update={"adapter": None})
    recipe = found.recipe.model_copy(update={"model": model})
    return found._replace(recipe=recipe, weights=weights, base_digest=config_value(run, BASE))


def read_adapter(run: Path) -> TranslatorRun:
    """Read an adapter's run: its weights are those of the adapter alone."""
    if read_recipe(run).model.adapter is None:
        raise ConfigError(f"{run} is a complete run, not an adapter; use it by itself, or give the folder of an adapter")
    return _read_saved(run)


def _read_saved(run: Path, step: int | None = None) -> TranslatorRun:
    """Read the weights that the run of a translator has saved, at the end or in the snapshot of a step."""
    recipe, tokenizers = read_run(run)
    require(recipe, run, "translator", "infiller")
    file = find_weights(run, recipe, step)
    return TranslatorRun(run, recipe, tokenizers, load_weights(file.path), file)
