"""Step 3 of a lesson: the scores of the keys, the division, the mask and the softmax."""

import math
from typing import Any

from torch import Tensor

from qkv.lens.lesson.inputs import strongest_keys
from qkv.lens.lesson.material import Material
from qkv.lens.lesson.texts import (
    LessonQuestion,
    LessonStep,
    LessonText,
    ask_choice,
    ask_number,
    distinct,
    finite,
    percent,
    picture,
    say,
    shown,
)

ROWS = 9  # keys that a table shows; of more, those with the largest weights
OPTIONS = 4
SCORES = ("dot", "dot_sum", "score_additive", "score_dot", "score_general")
BIASES = ("bias_distance", "bias_bucket", "bias_relative")
MASKS = ("mask_none", "mask_causal", "mask_pattern")


def scores_step(material: Material) -> LessonStep:
    """Return step 3: the scores of all keys, the division, the mask and the softmax."""
    names = distinct(material.head.keys)
    scored, divided, biased, masked = (material.step(*one) for one in (SCORES, ("divide",), BIASES, MASKS))
    assert scored is not None and masked is not None
    final, weights, best = masked["scores"], material.weights, material.best
    visible = [n for n, value in enumerate(final.tolist()) if math.isfinite(value)]
    hidden = [n for n in range(len(final)) if n not in visible]
    exponentials = (final - final.max()).exp()
    strongest = sorted(visible, key=lambda n: -float(weights[n]))[: ROWS - min(3, len(hidden))]
    rows = sorted(strongest + hidden[: ROWS - len(strongest)])  # in the order of the sentence, with some hidden ones
    questions, says = [], _score_says(scored.name)
    columns = [_column("q · k" if divided else "score", scored["dot"], rows)]
    if divided is not None:
        root = float(divided["sqrt_d"])
        one = next((n for n in reversed(strongest_keys(material)) if n != best), best)
        questions.append(_division(names[one], float(scored["dot"][one]), root, float(divided["scores"][one])))
        columns.append(_column("÷ √d", divided["scores"], rows, "divide", [rows.index(one)]))
        says.append(
            say(
                "Sums of many numbers are large. Dividing by √d, here {root}, keeps the softmax from choosing one word alone.",
                root=shown(root, 1),
            )
        )
    if biased is not None:
        columns.append(_column("+ b", biased["scores"], rows))
        says.append(say("A number b for the distance is added: here the order of the words enters."))
    if hidden:
        says.append(say("The mask hides tokens that this one may not see: their score becomes −∞, and their weight 0."))
        questions.append(_mask(names, visible, hidden, masked.name))
    else:
        says.append(say("A mask could hide tokens; here it hides none."))
    says.append(say("The softmax takes e to the power of each score and divides by the sum: weights that add up to 1."))
    questions += [_largest(names, material, visible), _share(exponentials, float(weights[best]))]
    columns.append({**_column("e^(s − max)", exponentials, rows, "largest"), "short": "e^(…)"})
    columns.append(_column("weight", weights, rows, "share"))
    table = picture(
        "scores",
        "scores",
        say("From scores to weights"),
        says,
        keys=[names[n] for n in rows],
        masked=[n in hidden for n in rows],
        columns=columns,
        more=len(names) - len(rows),
    )
    return LessonStep("scores", say("Scores become weights"), [table], questions)


def _score_says(name: str) -> list[LessonText]:
    if name == "score_additive":
        return [
            say("Query and key are added and squashed by tanh; a learned vector weighs the result. That is the score of a token.")
        ]
    return [
        say(
            "The query is multiplied with each key, number by number, and the products are added: the score. "
            "A large score means that the two fit."
        )
    ]


def _column(
    label: str, values: Tensor, rows: list[int], after: str | None = None, hidden: list[int] | None = None
) -> dict[str, Any]:
    """Return a column; `hidden` are the rows, by default all, that are hidden until the question `after` is answered."""
    covered = list(range(len(rows))) if hidden is None and after is not None else hidden or []
    return {"label": label, "values": finite(values[rows].tolist()), "after": after, "hidden": covered}


def _division(token: str, score: float, root: float, divided: float) -> LessonQuestion:
    values = {"score": shown(score), "root": shown(root)}
    return ask_number(
        "divide",
        say("The score of “{token}” is {score}. Divided by √d = {root}, what is it?", token=token, **values),
        divided,
        round(score, 2) / round(root, 2),
        say("Round √d first, and you can do it in your head."),
        say("{score} / {root} = {x}.", x=shown(divided), **values),
    )


def _mask(names: list[str], visible: list[int], hidden: list[int], kind: str) -> LessonQuestion:
    chosen = sorted([*visible[-2:], hidden[0]])
    causal = kind == "mask_causal"
    return ask_choice(
        "mask",
        say("Which of these tokens does the mask hide from this one?"),
        [names[n] for n in chosen],
        chosen.index(hidden[0]),
        say("A model that writes must not see what it has yet to write.") if causal else say("It lies far away in the text."),
        say("“{token}” comes later, so it is hidden.", token=names[hidden[0]])
        if causal
        else say("“{token}” is hidden by the model's attention pattern.", token=names[hidden[0]]),
    )


def _largest(names: list[str], material: Material, visible: list[int]) -> LessonQuestion:
    ranked = sorted(visible, key=lambda n: -float(material.weights[n]))[:OPTIONS]
    options = sorted(ranked)
    token, weight = names[material.best], percent(float(material.weights[material.best]))
    return ask_choice(
        "largest",
        say("Which token will have the largest weight?"),
        [names[n] for n in options],
        options.index(material.best),
        say("The softmax keeps the order: look for the largest score."),
        say("“{token}” has the largest score, and gets {weight} of the attention.", token=token, weight=weight),
    )


def _share(exponentials: Tensor, weight: float) -> LessonQuestion:
    total = float(exponentials.sum())
    return ask_number(
        "share",
        say("For the largest score, e^(s − max) is 1, and all tokens together have {total}. What is the largest "
                "weight?", total=shown(total)),
        weight,
        1 / max(round(total, 2), 0.01),
        say("Divide 1 by the sum of all."),
        say("1 / {total} = {x}: about {share} of the attention.", total=shown(total), x=shown(weight), share=percent(weight)),
    )  # fmt: skip
