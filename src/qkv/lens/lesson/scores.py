"""Steps 3 and 4 of a lesson: scores become weights, and the weighted sum of the values goes on."""

import math
from typing import Any

import torch
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
    say,
    shown,
    vector_row,
    vectors_picture,
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
    rows = _shown_keys(material, visible, hidden)
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
        says.append(say("A mask could hide tokens. Here it hides nothing: the whole sentence may be seen."))
    says.append(say("The softmax takes e to the power of each score and divides by the sum: weights that add up to 1."))
    questions += [_largest(names, material, visible), _share(exponentials, float(weights[best]))]
    columns.append(_column("e^(s − max)", exponentials, rows, "largest"))
    columns.append(_column("weight", weights, rows, "share"))
    table = {
        "kind": "scores",
        "name": "scores",
        "title": say("From scores to weights").json(),
        "keys": [names[n] for n in rows],
        "masked": [n in hidden for n in rows],
        "columns": columns,
        "more": len(names) - len(rows),
    }
    return LessonStep("scores", say("Scores become weights"), says, [table], questions)


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


def _shown_keys(material: Material, visible: list[int], hidden: list[int]) -> list[int]:
    """Return the keys of the table, in the order of the sentence: those with the largest weights, and some hidden ones."""
    best = sorted(visible, key=lambda n: -float(material.weights[n]))[: ROWS - min(3, len(hidden))]
    return sorted(best + hidden[: ROWS - len(best)])


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


def sum_step(material: Material) -> LessonStep:
    """Return step 4: the weighted sum of the values, the heads side by side, the residual and the norm."""
    values = material.step("values", "values_source", "values_states", "values_convolution")
    summed = material.step("weighted_sum")
    assert values is not None and summed is not None
    v, z, names = values["v"], summed["z"], distinct(material.head.keys)
    few = strongest_keys(material)
    parts = material.weights[few, None] * v[few]
    rest = z - parts.sum(0)
    rows = [vector_row(f"{shown(float(material.weights[n]))} · v", part, names[n]) for n, part in zip(few, parts, strict=True)]
    if len(names) > len(few):
        rows.append(vector_row("+", rest, "…"))
    rows.append(vector_row("z", z, after="sum", hidden=[0]))
    pictures = [vectors_picture("sum", say("Values, each times its weight, and their sum z"), rows)]
    says = [
        say(
            "Each value is multiplied by its weight, and all are added: z is a mixture, most of it from “{token}”.",
            token=names[material.best],
        )
    ]
    questions = [_weighted(parts, rest, z, len(names) > len(few))]
    joined = material.step("heads_joined")
    if joined is not None and material.heads > 1:
        heads = joined["z"]
        rows = [vector_row(f"z{n + 1}", row) for n, row in enumerate(heads[:OPTIONS])]
        pictures.append(vectors_picture("heads", say("The results of the heads"), rows))
        says.append(
            say(
                "All heads do this at the same time, each with its own matrices, and each looks for "
                "something else. Their results are put side by side."
            )
        )
        questions.append(_joined(*heads.shape))
    _add_residual(material, says, pictures, questions)
    return LessonStep("sum", say("The weighted sum"), says, pictures, questions)


def _add_residual(material: Material, says: list[LessonText], pictures: list[Any], questions: list[LessonQuestion]) -> None:
    """Add what happens to z: the residual connection and the norm, or what recurrent and convolutional layers do instead."""
    residual, readout = material.step("residual"), material.step("readout")
    if residual is not None:
        before, added, x = residual["before"], residual["output"], residual["x"]
        says.append(
            say(
                "A matrix mixes the results into one vector o, which is added to the vector that came in "
                "(the residual connection): nothing is lost."
            )
        )
        rows = [vector_row("x", before), vector_row("o", added), vector_row("x + o", x, after="residual", hidden=[0])]
        norm = material.step("norm", "norm_feedforward")
        if norm is not None:
            says.append(say("A norm then brings all numbers to the same size: mean 0 and deviation 1, times learned scales."))
            rows.append(vector_row("norm", next(one.values for one in norm.values if one.kind == "vector")))
        pictures.append(vectors_picture("residual", say("What came in, what is added, and the sum"), rows))
        questions.append(_residual(before, added, x))
    elif readout is not None:
        says.append(say("A matrix and tanh turn the state and z into one vector, from which the next word will be chosen."))
        pictures.append(vectors_picture("readout", say("State and z are joined"), [vector_row("o", readout["output"])]))
    else:
        joined = material.step("residual_layer")
        assert joined is not None
        says.append(
            say("A matrix brings z to the width of the layer, where it is added to what came in (the residual connection).")
        )
        rows = [vector_row("x", joined["before"]), vector_row("x", joined["x"], token="+")]
        pictures.append(vectors_picture("residual", say("What came in, and what goes on"), rows))


def _weighted(parts: Tensor, rest: Tensor, z: Tensor, more: bool) -> LessonQuestion:
    terms = [float(part[0]) for part in parts] + ([float(rest[0])] if more else [])
    total = " + ".join(f"({shown(term)})" if term < 0 else shown(term) for term in terms)
    return ask_number(
        "sum",
        say("Add the first numbers of the rows: {total} = ?", total=total),
        float(z[0]),
        sum(round(term, 2) for term in terms),
        say("The first number of z is the sum of the first column."),
        say("{total} = {x}.", total=total, x=shown(float(z[0]))),
    )


def _joined(heads: int, width: int) -> LessonQuestion:
    return ask_number(
        "joined",
        say("{heads} heads with {width} numbers each are put side by side. How many numbers are that?", heads=heads, width=width),
        heads * width,
        heads * width,
        say("Multiply."),
        say("{heads} · {width} = {x}.", heads=heads, width=width, x=heads * width),
        digits=0,
    )


def _residual(before: Tensor, added: Tensor, x: Tensor) -> LessonQuestion:
    values = {"a": shown(float(before[0])), "b": shown(float(added[0]))}
    return ask_number(
        "residual",
        say("The first number of x is {a}, that of o is {b}. What is their sum?", **values),
        float(x[0]),
        float(torch.round(before[0], decimals=2) + torch.round(added[0], decimals=2)),
        say("Just add; watch the sign."),
        say("{a} + {b} = {x}.", x=shown(float(x[0])), **values),
    )
