"""Step 4 of a lesson: the weighted sum of the values, the heads side by side, and the residual connection with its norm."""

from typing import Any

from torch import Tensor

from qkv.lens.lesson.inputs import strongest_keys
from qkv.lens.lesson.material import Material
from qkv.lens.lesson.texts import (
    LessonQuestion,
    LessonStep,
    ask_number,
    distinct,
    say,
    shown,
    signed,
    vector_row,
    vectors_picture,
)

HEADS = 4  # whose results are drawn


def sum_step(material: Material) -> LessonStep:
    """Return step 4."""
    pictures, questions = _weighted_sum(material)
    joined = material.step("heads_joined")
    if joined is not None and material.heads > 1:
        heads = joined["z"]
        says = say(
            "All heads do this at the same time, each with its own matrices, and each looks for something "
            "else. Their results are "
            "put side by side."
        )
        rows = [vector_row(f"z{n}", row) for n, row in enumerate(heads[:HEADS], 1)]
        pictures.append(vectors_picture("heads", say("The results of the heads"), rows, [says]))
        questions.append(_joined(*heads.shape))
    residual, readout = material.step("residual"), material.step("readout")
    if residual is not None:
        pictures.append(_residual_picture(material))
        questions.append(_residual(residual["before"], residual["output"], residual["x"]))
    elif readout is not None:
        says = say("A matrix and tanh turn the state and z into one vector, from which the next word will be chosen.")
        rows = [vector_row("o", readout["output"])]
        pictures.append(vectors_picture("readout", say("State and z are joined"), rows, [says]))
    else:
        layer = material.step("residual_layer")
        assert layer is not None
        says = say("A matrix brings z to the width of the layer, where it is added to what came in (the residual connection).")
        rows = [vector_row("x", layer["before"]), vector_row("x", layer["x"], token="+")]
        pictures.append(vectors_picture("residual", say("What came in, and what goes on"), rows, [says]))
    return LessonStep("sum", say("The weighted sum"), pictures, questions)


def _weighted_sum(material: Material) -> tuple[list[dict[str, Any]], list[LessonQuestion]]:
    """Return the picture of the weighted values and their sum, and its question."""
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
    says = say(
        "Each value is multiplied by its weight, and all are added: z is a mixture, most of it from “{token}”.",
        token=names[material.best],
    )
    picture = vectors_picture("sum", say("Values, each times its weight, and their sum z"), rows, [says])
    return [picture], [_weighted(parts, rest, z, len(names) > len(few))]


def _residual_picture(material: Material) -> dict[str, Any]:
    residual, norm = material.step("residual"), material.step("norm", "norm_feedforward")
    assert residual is not None
    says = [
        say(
            "A matrix mixes the results into one vector o, which is added to the vector x that came in (the "
            "residual connection): "
            "nothing is lost."
        )
    ]
    rows = [vector_row("x", residual["before"]), vector_row("o", residual["output"])]
    rows.append(vector_row("x + o", residual["x"], after="residual", hidden=[0]))
    if norm is not None:
        says.append(say("A norm then brings all numbers to the same size: mean 0 and deviation 1, times learned scales."))
        rows.append(vector_row("norm", next(one.values for one in norm.values if one.kind == "vector")))
    return vectors_picture("residual", say("What came in, what is added, and the sum"), rows, says)


def _weighted(parts: Tensor, rest: Tensor, z: Tensor, more: bool) -> LessonQuestion:
    terms = [float(part[0]) for part in parts] + ([float(rest[0])] if more else [])
    total = " + ".join(map(signed, terms))
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
    a, b = float(before[0]), float(added[0])
    values = {"a": shown(a), "b": shown(b)}
    return ask_number(
        "residual",
        say("The first number of x is {a}, that of o is {b}. What is their sum?", **values),
        float(x[0]),
        round(a, 2) + round(b, 2),
        say("Just add; watch the sign."),
        say("{a} + {b} = {x}.", a=shown(a), b=signed(b), x=shown(float(x[0]))),
    )
