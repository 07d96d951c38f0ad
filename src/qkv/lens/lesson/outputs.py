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
    percent,
    say,
    shown,
    vector_row,
    vectors_picture,
)
from qkv.lens.steps import SearchView

UNITS = 64  # inner units of a feed-forward network that are drawn, evenly chosen
TOP = 6  # most probable tokens that are drawn
OPTIONS = 4
TITLES = {"translator": say("The translation"), "generator": say("The next word"), "encoder": say("The hidden word")}


def layers_step(material: Material) -> LessonStep:
    """Return step 5: the feed-forward network, and what the model would say after each layer."""
    says: list[LessonText] = []
    pictures: list[dict[str, Any]] = []
    questions: list[LessonQuestion] = []
    inner = material.step("feedforward_inner", "feedforward_gated")
    if inner is not None:
        _add_units(inner["units"], says, pictures, questions)
    questions.append(_next(material))
    if material.layers is not None:
        _add_layers(material, says, pictures, questions)
    elif inner is None:
        says.append(
            say(
                "This model has no further layers between the attention and the output: its layers are "
                "recurrent and have read the text before."
            )
        )
        state = material.step("state")
        assert state is not None
        pictures.append(vectors_picture("state", say("The state of the top layer"), [vector_row("h", state["q"])]))
        questions.append(_tanh())
    return LessonStep("layers", say("Layer after layer"), says, pictures, questions)


def _add_units(units: Tensor, says: list[LessonText], pictures: list[Any], questions: list[LessonQuestion]) -> None:
    """Add the feed-forward network."""
    share = float((units > 0).float().mean())
    says.append(
        say(
            "Then each token is worked on by itself: a feed-forward network with {count} units. Each unit "
            "looks for one pattern in "
            "the vector; those that find theirs are above 0, and what they know is added to the vector.",
            count=len(units),
        )
    )
    chosen = units[:: -(-len(units) // UNITS)]
    pictures.append(
        {
            "kind": "units",
            "name": "units",
            "title": say("{shown} of the {count} units", shown=len(chosen), count=len(units)).json(),
            "values": [round(value, 4) for value in chosen.tolist()],
            "after": "active",
        }
    )
    options = sorted({share, *((0.9, 0.5) if share < 0.35 else (0.1, 0.95) if share < 0.75 else (0.1, 0.5))})
    questions.append(
        ask_choice(
            "active",
            say("What share of the {count} units do you expect above 0?", count=len(units)),
            [percent(one) for one in options],
            options.index(share),
            say("Each unit looks for a pattern of its own. Will most of them find it in one token?"),
            say("{share} of the units are above 0 here.", share=percent(share)),
        )
    )


def _add_layers(material: Material, says: list[LessonText], pictures: list[Any], questions: list[LessonQuestion]) -> None:
    """Add what the model would predict after each layer."""
    found = material.layers
    assert found is not None
    column = _column(material)
    answer, ranks = bare(found.answers[column]), found.rank[:, column].tolist()
    says.append(
        say(
            "The next layer does the same again: heads, residual, feed-forward network. If the model had to "
            "stop after a layer, "
            "this is what it would say. The picture follows the token that it says in the end."
        )
    )
    first = ranks.index(1) if 1 in ranks else None
    pictures.append(
        {
            "kind": "layers",
            "name": "layers",
            "title": say("What the model would say after each layer").json(),
            "answer": answer,
            "layers": [
                {
                    "layer": n + 1,
                    "top": [[bare(token), round(p, 4)] for token, p in found.top[n][column][:3]],
                    "probability": round(float(found.probability[n, column]), 4),
                    "rank": ranks[n],
                }
                for n in range(len(ranks))
            ],
            "after": "next" if first is None else "layer",
        }
    )
    if first is not None:
        near = sorted({*range(len(ranks))}, key=lambda n: abs(n - first))[:OPTIONS]
        questions.append(_first_layer(answer, first, sorted(near)))


def _column(material: Material) -> int:
    """Return which of the predictions of the layers is made at the head's position."""
    assert material.layers is not None
    positions = material.layers.positions
    if material.head.kind == "translator":
        return material.head.position
    return list(positions).index(material.head.position)


def _first_layer(answer: str, first: int, options: list[int]) -> LessonQuestion:
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
    asks = {
        "translator": say("Which token will the model find most probable as its next one, after the last layer?"),
        "generator": say("Which token will the model find most probable as the next one, after the last layer?"),
        "encoder": say("Which token will the model find most probable for [MASK], after the last layer?"),
    }
    found = material.predictions
    tokens = [bare(token) for token in found.tokens[:OPTIONS]]
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
    says = [
        say(
            "The last vector is multiplied with a vector of each token of the vocabulary: a number for each, "
            "its logit. A softmax "
            "turns the logits into probabilities."
        )
    ]
    questions = [_softmax(found.logits, found.probabilities), _ratio(found.logits)]
    pictures = [_bars(found)]
    if material.search is not None:
        says.append(_search_says(material.search))
        pair = _pair(material)
        if pair is not None:
            questions.append(_product(*pair))
        pictures.append(search_picture(material.search, "softmax"))
    if material.given is not None:
        says.append(say("In the sentence that was given, “{word}” stood in the place of [MASK].", word=material.given))
    output = (material.output or "").strip()
    result = {"kind": "result", "name": "result", "title": TITLES[kind].json(), "text": material.text, "output": output}
    return LessonStep("output", TITLES[kind], says, [*pictures, {**result, "after": "softmax"}], questions)


def _bars(found: TokenProbabilities) -> dict[str, Any]:
    rows = zip(found.tokens, found.logits.tolist(), found.probabilities.tolist(), strict=True)
    tokens = [{"token": bare(token), "logit": round(logit, 4), "probability": round(p, 4)} for token, logit, p in rows]
    title = say("The most probable tokens").json()
    return {"kind": "bars", "name": "probabilities", "title": title, "tokens": tokens[:TOP], "after": "softmax"}


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
    ratio = math.exp(difference)
    return ask_number(
        "ratio",
        say(
            "The largest logit is {difference} above the second. How many times as probable is its token? "
                    "(e^1 is about 2.7, e^2 "
            "about 7.4, e^3 about 20.)",
            difference=shown(difference),
        ),
        ratio,
        ratio * (1 + 0.1),  # by the powers of e that the question names
        say("It is e to the power of the difference."),
        say(
            "e^{difference} = {x}: a difference of logits is a ratio of probabilities.",
            difference=shown(difference), x=shown(ratio, 1),
        ),
        digits=1,
    )  # fmt: skip


def _pair(material: Material) -> list[tuple[str, float]] | None:
    """Return two tokens of the output that follow each other, neither of which is the one that step 5 asks for."""
    assert material.search is not None
    path = written_tokens(material.search)
    asked = material.head.position if material.head.kind == "translator" else 0
    first = next((n for n in range(len(path) - 1) if asked not in (n, n + 1)), None)
    return None if first is None else path[first : first + 2]


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
