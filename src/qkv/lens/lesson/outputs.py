"""Steps 5 and 6 of a lesson: layer after layer, and from the logits to the next word and the translation."""

import math
from typing import Any

from torch import Tensor

from qkv.lens.arithmetic.steps import TokenProbabilities
from qkv.lens.lesson.material import Material
from qkv.lens.lesson.search import search_picture, written_tokens
from qkv.lens.lesson.texts import (
    LessonQuestion,
    LessonStep,
    LessonText,
    ask_choice,
    ask_number,
    bare,
    marked,
    percent,
    picture,
    say,
    shown,
    vector_row,
    vectors_picture,
    written_so_far,
)
from qkv.lens.steps import SearchView

UNITS = 64  # inner units of a feed-forward network that are drawn, evenly chosen
TOP = 6  # most probable tokens that are drawn
OPTIONS = 4
SMALLEST = 0.05  # probability of two tokens that is asked for; less would be 0.0
TITLES = {"translator": say("The translation"), "generator": say("The next word"), "encoder": say("The hidden word")}


def layers_step(material: Material) -> LessonStep:
    """Return step 5: the feed-forward network, and what the model would say after each layer."""
    pictures: list[dict[str, Any]] = []
    questions: list[LessonQuestion] = []
    inner = material.step("feedforward_inner", "feedforward_gated")
    if inner is not None:
        pictures.append(_units_picture(inner["units"]))
        questions.append(_active(inner["units"]))
    questions.append(_next(material))
    if material.layers is not None:
        layers = _by_layer(material)
        first = next((n for n, layer in enumerate(layers) if layer["first"]), None)
        pictures.append(_layers_picture(material, layers, "next" if first is None else "layer"))
        if first is not None:
            questions.append(_first_layer(_said(material), first, len(layers)))
    elif inner is None:
        state = material.step("state")
        assert state is not None
        says = say(
            "This model has no further layers between the attention and the output: its layers are recurrent and have read the "
            "text before."
        )
        pictures.append(vectors_picture("state", say("The state of the top layer"), [vector_row("h", state["q"])], [says]))
        questions.append(_tanh())
    return LessonStep("layers", say("Layer after layer"), pictures, questions)


def _units_picture(units: Tensor) -> dict[str, Any]:
    chosen = units[:: -(-len(units) // UNITS)]
    says = say(
        "Then each token is worked on by itself: a feed-forward network with {count} units. Each unit looks for one pattern in "
        "the vector; those that find theirs are above 0, and what they know is added to the vector.",
        count=len(units),
    )
    title = say("{shown} of the {count} units", shown=len(chosen), count=len(units))
    return picture("units", "units", title, [says], values=[round(value, 4) for value in chosen.tolist()], after="active")


def _active(units: Tensor) -> LessonQuestion:
    share = float((units > 0).float().mean())
    options = sorted({share, *((0.9, 0.5) if share < 0.35 else (0.1, 0.95) if share < 0.75 else (0.1, 0.5))})
    return ask_choice(
        "active",
        say("What share of the {count} units do you expect above 0?", count=len(units)),
        [percent(one) for one in options],
        options.index(share),
        say("Each unit looks for a pattern of its own. Will most of them find it in one token?"),
        say("{share} of the units are above 0 here.", share=percent(share)),
    )


def _by_layer(material: Material) -> list[dict[str, Any]]:
    """Return for each layer the most probable tokens, and whether the first of them is what the model says in the end."""
    found = material.layers
    assert found is not None
    column = _column(material)
    said = found.top[-1][column][0][0]
    return [
        {
            "layer": n,
            "top": [[bare(token), round(p, 4)] for token, p in best[column][:3]],
            "probability": next((round(p, 4) for token, p in best[column] if token == said), None),  # of what it says in the end
            "first": best[column][0][0] == said,
        }
        for n, best in enumerate(found.top, 1)
    ]


def _said(material: Material) -> str:
    """Return the token that is most probable after the last layer."""
    assert material.layers is not None
    return bare(material.layers.top[-1][_column(material)][0][0])


def _layers_picture(material: Material, layers: list[dict[str, Any]], after: str) -> dict[str, Any]:
    says = say(
        "The next layer does the same again: heads, residual, feed-forward network. The picture shows what "
        "the model would say if "
        "it had to stop after a layer. The bars follow the token that it says in the end."
    )
    title = say("What the model would say after each layer")
    return picture("layers", "layers", title, [says], answer=_said(material), layers=layers, after=after)


def _column(material: Material) -> int:
    """Return which of the predictions of the layers is made at the head's position."""
    assert material.layers is not None
    positions = material.layers.positions
    if material.head.kind == "translator":
        return material.head.position
    return list(positions).index(material.head.position)


def _first_layer(answer: str, first: int, count: int) -> LessonQuestion:
    options = sorted(sorted(range(count), key=lambda n: abs(n - first))[:OPTIONS])
    return ask_choice(
        "layer",
        say("After which layer will the token that it says in the end be the first choice for the first time?"),
        [say("after layer {layer}", layer=n + 1) for n in options],
        options.index(first),
        say("Early layers mostly know the token itself; later ones know what should come."),
        say("“{answer}” is the first choice after layer {layer} for the first time.", answer=answer, layer=first + 1),
    )


def _tanh() -> LessonQuestion:
    return ask_number(
        "tanh",
        say("The state comes out of tanh, which squashes every number. Which number can it never exceed?"),
        1.0,
        1.0,
        say("Look at the picture: how large is its largest number?"),
        say("tanh brings every number between −1 and 1."),
        digits=0,
    )


def _next(material: Material) -> LessonQuestion:
    """Ask for the token that the model finds most probable in the end."""
    so_far = written_so_far([token for token, _ in material.so_far])
    asks = {
        "translator": say("The model has written “{text}” so far. Which token will it find most probable next?", text=so_far),
        "generator": say("The text so far is “{text}”. Which token will the model find most probable next?", text=so_far),
        "encoder": say("“{text}”: which token will the model find most probable in the gap?", text=material.text),
    }
    found = material.predictions
    tokens = marked(found.tokens[:OPTIONS])
    options = sorted(tokens, key=str.casefold)
    return ask_choice(
        "next",
        asks[material.head.kind],
        options,
        options.index(tokens[0]),
        say("Read what there is so far, and go on."),
        say("“{token}”, with a probability of {share}.", token=tokens[0], share=percent(float(found.probabilities[0]))),
    )


def output_step(material: Material) -> LessonStep:
    """Return step 6: logits, probabilities, and how the whole output is written."""
    kind, found = material.head.kind, material.predictions
    questions = [_softmax(found.logits, found.probabilities), _ratio(found.logits)]
    pictures = [_bars(found)]
    if material.search is not None:
        pair = _pair(material)
        if pair is not None:
            questions.append(_product(*pair))
        pictures.append(search_picture(material.search, _search_says(material.search), "softmax"))
    says = []
    if material.given is not None:
        says.append(say("In the sentence that was given, “{word}” stood in the place of [MASK].", word=material.given))
    output = (material.output or "").strip()
    pictures.append(picture("result", "result", TITLES[kind], says, text=material.text, output=output, after="softmax"))
    return LessonStep("output", TITLES[kind], pictures, questions)


def _bars(found: TokenProbabilities) -> dict[str, Any]:
    rows = zip(marked(found.tokens), found.logits.tolist(), found.probabilities.tolist(), strict=True)
    tokens = [{"token": token, "logit": round(logit, 4), "probability": round(p, 4)} for token, logit, p in rows]
    says = say(
        "The last vector is multiplied with a vector of each token of the vocabulary: a number for each, its logit. A softmax "
        "turns the logits into probabilities."
    )
    return picture("bars", "probabilities", say("The most probable tokens"), [says], tokens=tokens[:TOP], after="softmax")


def _search_says(search: SearchView) -> LessonText:
    if search.search != "beam":
        return say("The token is added to the text, the model reads it, and everything begins again.")
    return say(
        "The search keeps the best {beam} beginnings side by side and goes on with each of them. In the end "
                "the one with the best "
        "score wins.",
        beam=search.writing.config.beam,
    )  # fmt: skip


def _softmax(logits: Tensor, probabilities: Tensor) -> LessonQuestion:
    """Ask what the softmax makes of the three largest logits: as the model does, in proportion, or all for the first."""
    three, best = [float(value) for value in probabilities[:3]], [float(value) for value in logits[:3]]
    low = min(best) - 1  # logits may be negative
    linear = [(value - low) / sum(one - low for one in best) for value in best]
    wrong = [[1.0, 0.0, 0.0] if three[0] < 0.9 else [0.5, 0.3, 0.2], [1 / 3] * 3 if abs(linear[0] - three[0]) < 0.08 else linear]
    options = sorted([three, *wrong])
    return ask_choice(
        "softmax",
        say(
            "The three largest logits are {a}, {b} and {c}. What will the softmax over all tokens make of them?",
            **_abc([shown(value) for value in best]),
        ),
        [", ".join(percent(value) for value in one) for one in options],
        options.index(three),
        say(
            "e to the power of a number grows fast: a difference of 1 makes it 2.7 times as large. And the other "
            "tokens get a share, too."
        ),
        say("They become {a}, {b} and {c}; all other tokens share the rest.", **_abc([percent(value) for value in three])),
    )


def _abc(values: list[str]) -> dict[str, str]:
    return dict(zip("abc", values, strict=True))


def _ratio(logits: Tensor) -> LessonQuestion:
    difference = float(logits[0] - logits[1])
    ratio, below = math.exp(difference), math.floor(difference)
    return ask_number(
        "ratio",
        say(
            "The largest logit is {difference} above the second. How many times as probable is its token? "
                    "(e^{n} is about {low}, "
            "e^{m} about {high}.)",
            difference=shown(difference), n=below, low=_power(below), m=below + 1, high=_power(below + 1),
        ),
        ratio,
        ratio * (1 + 0.15),  # between the two powers that the question names
        say("It is e to the power of the difference: a number between these two."),
        say(
            "e^{difference} = {x}: a difference of logits is a ratio of probabilities.",
            difference=shown(difference), x=_power(difference),
        ),
        digits=1 if ratio < 10 else 0,
    )  # fmt: skip


def _power(exponent: float) -> str:
    value = math.exp(exponent)
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _pair(material: Material) -> list[tuple[str, float]] | None:
    """Return the first two probable tokens in a row of the output, without the one that step 5 asks for."""
    assert material.search is not None
    path = written_tokens(material.search)
    asked = material.head.position if material.head.kind == "translator" else 0
    pairs = [path[n : n + 2] for n in range(len(path) - 1) if asked not in (n, n + 1)]
    return next((pair for pair in pairs if pair[0][1] * pair[1][1] >= SMALLEST), None)


def _product(one: tuple[str, float], two: tuple[str, float]) -> LessonQuestion:
    (first, a), (second, b) = one, two
    values = {"a": shown(a), "b": shown(b)}
    return ask_number(
        "product",
        say(
            "The model gave “{first}” the probability {a}, and “{second}” after it {b}. What is the probability of both?",
            first=first, second=second, **values,
        ),
        a * b,
        round(a, 2) * round(b, 2),
        say("Multiply the two."),
        say("{a} · {b} = {x}. Each further token makes the product smaller.", x=shown(a * b), **values),
    )  # fmt: skip
