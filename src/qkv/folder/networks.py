"""An encoder's run, read: its tokenizer, and the one or two networks that its weights are."""

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from qkv.base.errors import CheckpointError, ConfigError
from qkv.folder.run import CONFIG, known, newest_weights, read_run
from qkv.interop.huggingface import Checkpoint
from qkv.models.electra import ElectraConfig
from qkv.parts.encoder import EncoderConfig
from qkv.parts.heads import ENCODER
from qkv.recipes import Recipe
from qkv.text.tokenizer import Tokenizer
from qkv.training.checkpoints import load_weights

HEADS = "heads"
GENERATOR, DISCRIMINATOR = "generator", "discriminator"  # an ELECTRA's two networks
EMBEDDING = "embedding."  # which they share: weights are kept once, with the discriminator
# What those without a head that is asked for can do.
INSTEAD = {"causal": "; use qkv generate", "bidirectional": "; use qkv embed, or qkv evaluate --pairs"}


class EncoderRun(NamedTuple):
    """What is in the folder of an encoder's run."""

    folder: Path
    recipe: Recipe
    tokenizer: Tokenizer
    network: Checkpoint  # the encoder that the run was for, with its heads
    generator: Checkpoint | None = None  # of an ELECTRA that was trained here
    trained_length: int | None = None  # tokens of the longest text it was trained on; None where nobody knows

    def with_head(self, name: str, use: str) -> Checkpoint:
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
    network = network._replace(labels=_labels(run, network))
    return EncoderRun(run, recipe, tokenizers.source, network, generator, trained_length_of(run))


def trained_length_of(run: Path) -> int | None:
    """Tokens of the longest text that a run was trained on; None where nobody knows, as of one that was imported."""
    length = known(run, "trained_length")
    return length if isinstance(length, int) else None


def _labels(run: Path, network: Checkpoint) -> tuple[str, ...]:
    """The names of what the head of a fine-tuned model tells apart; none where it has no names for them."""
    head = next((network.weights[name] for name in ("classes", "tags") if name in network.weights), None)
    names = tuple(map(str, known(run, "labels") or ()))
    if names and (head is None or len(names) != len(head["output.weight"])):
        raise CheckpointError(f"{run / CONFIG}: {len(names)} labels, which are not those of the weights; put the right file back")
    return names


def networks_of(c: EncoderConfig, weights: dict[str, Tensor], where: str) -> tuple[Checkpoint, Checkpoint | None]:
    """The network that named weights are, and an ELECTRA's generator beside it where there is one."""
    if not isinstance(c, ElectraConfig) or not any(name.startswith(f"{DISCRIMINATOR}.") for name in weights):
        return Checkpoint(c, _parts(weights, "", where)), None
    first, second = (_parts(weights, f"{name}.", where) for name in (DISCRIMINATOR, GENERATOR))
    shared = {name: weight for name, weight in first[ENCODER].items() if name.startswith(EMBEDDING)}
    second[ENCODER] = {**shared, **second[ENCODER]}
    return Checkpoint(c, first), Checkpoint(c.of_generator(), second)


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


def named_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The inverse of `networks_of` for one network: named as in the model itself."""
    return {
        f"{ENCODER if part == ENCODER else f'{HEADS}.{part}'}.{name}": weight
        for part, weights in checkpoint.weights.items()
        for name, weight in weights.items()
    }
