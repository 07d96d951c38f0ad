"""The laboratory of a served model: arithmetic, changes, patching and other views, with what each of them costs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from qkv.base.errors import QkvError
from qkv.base.snapshots import snapshot_files
from qkv.inference.laboratory import layers, steps
from qkv.inference.predictors import make_contrast, make_predictor
from qkv.inference.through_training import look_in_steps
from qkv.lens.arithmetic import HeadChoice, arithmetic
from qkv.lens.attribution_view import view_attribution
from qkv.lens.comparison import changed
from qkv.lens.patching import patch_in_steps
from qkv.lens.view import Inspectable
from qkv.serving.batching import PreparedRequest
from qkv.serving.errors import invalid
from qkv.serving.lab_requests import (
    ArithmeticRequest,
    AttributeRequest,
    ChangeRequest,
    LayersRequest,
    PatchRequest,
    StepsRequest,
    ThroughTrainingRequest,
)
from qkv.serving.views import view_at_once, view_in_steps
from qkv.text.tokenizer import MASK
from qkv.text.treebank import TextWithHeads

# What each view costs, in passes of the model over its texts; decoding of a text counts as two.
PASSES = {"arithmetic": 5, "change": 10, "layers": 4, "attribute": 6, "through_training": 5}
INTEGRAL_PASSES = 300  # of integrated gradients, with their backward passes
STEP_TOKENS = 256  # of a pass of patching
LOADING = 500  # a snapshot, in tokens
STEP_COST = 8  # of a token and a hypothesis of a search that is shown, with all that is noted of it


class GivenText(NamedTuple):
    """The text of a request, with its heads where the model reads trees, its target, and how long they are."""

    text: str
    target: str | None
    tokens: int


class Laboratory:
    """Prepares the views of a loaded model with attention."""

    def __init__(self, loaded: Inspectable):
        self.loaded: Any = loaded
        self.layers = self.heads = 0  # whose activations can be patched
        self.snapshots = 0 if loaded.folder is None else len(snapshot_files(loaded.folder))  # type: ignore[attr-defined]
        self.abilities = self._abilities()

    def _abilities(self) -> list[str]:
        """Return the names of the views that the model has, found by computing tiny ones."""
        loaded, encoder = self.loaded, self.loaded.loads_as == "encoder"
        text, target = TextWithHeads("a", [0]), None if encoder else " a"
        options: dict[str, Any] = {"max_new_tokens": 1} if loaded.loads_as == "generator" else {"max_length": 4}
        masked = MASK if encoder else text

        def attribute() -> Any:
            try:
                return loaded.inspect(text, target).explain()
            except QkvError:  # an encoder explains a [MASK], or what it was fine-tuned for
                return loaded.inspect(MASK).explain()

        found = available(
            {
                "arithmetic": lambda: arithmetic(loaded, text, target),
                "change": lambda: changed(loaded, text, [], target),
                "layers": lambda: layers(loaded, masked, target),
                "steps": lambda: steps(loaded, "a", **options),
                "attribute": attribute,
            }
        )
        if "layers" in found and not loaded.trees:
            predictor = make_predictor(loaded, masked, target)
            self.layers, self.heads = len(predictor.layers), sum(site.heads for site in predictor.attentions)
            found.append("patch")
        found += ["through_training"] if self.snapshots else []
        return found + (["heads"] if getattr(loaded, "head_effects", None) is not None else [])

    def arithmetic(self, body: ArithmeticRequest, given: GivenText) -> PreparedRequest:
        """Prepare the numbers of one head at one position."""
        choice = HeadChoice(body.part, body.layer, body.head, body.position)
        return self._at_once("arithmetic", given, lambda: arithmetic(self.loaded, given.text, given.target, choice))

    def change(self, body: ChangeRequest, given: GivenText) -> PreparedRequest:
        """Prepare the model before and after changes."""
        changes = [one.parsed() for one in body.changes]
        return self._at_once("change", given, lambda: changed(self.loaded, given.text, changes, given.target, body.maps))

    def predict_by_layer(self, body: LayersRequest, given: GivenText) -> PreparedRequest:
        """Prepare the predictions of each layer."""
        return self._at_once("layers", given, lambda: layers(self.loaded, given.text, given.target, body.top))

    def steps(self, body: StepsRequest, given: GivenText) -> PreparedRequest:
        """Prepare a search, step by step."""
        options = body.options()
        if "max_new_tokens" in options and self.loaded.loads_as != "generator":
            raise invalid("max_new_tokens is for a model that continues texts; leave it out", "max_new_tokens")
        config = self.loaded.decoding(**options)
        beam = config.beam if config.searches else 1
        length = options.get("max_new_tokens") or given.tokens
        cost = given.tokens + STEP_COST * beam * length
        return view_at_once("steps", lambda: steps(self.loaded, given.text, body.top, **options), given.tokens, cost)

    def attribute(self, body: AttributeRequest, given: GivenText) -> PreparedRequest:
        """Prepare the contribution of each token to an output."""
        passes = {"gradient": PASSES["attribute"], "integrated": INTEGRAL_PASSES, "occlusion": PASSES["attribute"] + given.tokens}

        def begin(piece: int) -> Any:
            inspector = self.loaded.inspect(given.text, given.target)
            return (yield from view_attribution(inspector, body.method, body.word, body.instead))

        cost = passes[body.method] * given.tokens
        return view_in_steps("attribute", begin, given.tokens, cost, 3 * given.tokens)

    def patch(self, body: PatchRequest, given: GivenText, most: int) -> PreparedRequest:
        """Prepare the grids of heads and of states, for which at most `most` tokens may be computed."""
        cells = self.heads + self.layers * given.tokens
        if cells * given.tokens > most:
            raise invalid(
                f"up to {cells:,} heads and states over texts of {given.tokens:,} tokens are more than {most:,} tokens to "
                "compute; send shorter texts",
                "text",
                "text_too_long",
            )

        def begin(piece: int) -> Any:
            contrast = make_contrast(self.loaded, given.text, body.other, body.answer, body.instead, body.target)
            return (yield from patch_in_steps(contrast, body.position, max(piece, STEP_TOKENS)))

        return view_in_steps("patch", begin, given.tokens, cells * given.tokens, max(STEP_TOKENS, given.tokens))

    def through_training(self, body: ThroughTrainingRequest, given: GivenText) -> PreparedRequest:
        """Prepare a text at each snapshot of the training."""
        each = PASSES["through_training"] * given.tokens + LOADING
        device = str(getattr(self.loaded, "device", None) or self.loaded.engine.device)
        arguments = (self.loaded, given.text, given.target, body.part, body.layer, device)
        return view_in_steps(
            "through_training", lambda piece: look_in_steps(*arguments), given.tokens, (self.snapshots + 1) * each, each
        )

    def _at_once(self, name: str, given: GivenText, compute: Callable[[], Any]) -> PreparedRequest:
        return view_at_once(name, compute, given.tokens, PASSES[name] * given.tokens)


def available(attempts: dict[str, Callable[[], Any]]) -> list[str]:
    """Return the names of the attempts that a model can do."""
    names = []
    for name, attempt in attempts.items():
        try:
            attempt()
        except QkvError:
            continue
        names.append(name)
    return names
