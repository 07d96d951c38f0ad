"""Steps 1 and 2 of a lesson: words become vectors, and the query, keys and values of one head."""

from typing import Any

from torch import Tensor

from qkv.lens.arithmetic.steps import Step
from qkv.lens.inspectors import CROSS
from qkv.lens.lesson.material import Material
from qkv.lens.lesson.texts import (
    FIRST,
    LessonQuestion,
    LessonStep,
    LessonText,
    ask_choice,
    ask_number,
    bare,
    distinct,
    picture,
    say,
    shown,
    signed,
    vector_row,
    vectors_picture,
)

KEYS = 3  # tokens whose keys and values are drawn
WHERE = {
    "position_rotary": say("later: queries and keys will be rotated by angles that grow with the position"),
    "position_bias": say("later: the distance between two tokens will change their score"),
    "position_recurrent": say("by reading one token after the other: the state knows the order"),
    "position_none": say("nowhere: the model only knows which tokens come before"),
}
QUERIES = ("query", "query_additive", "query_convolution", "state")


def vectors_step(material: Material) -> LessonStep:
    """Return step 1: the tokens of the sentence, and the vector of one of them."""
    steps = {step.name: step for step in material.first.steps}
    e = steps["token"]["token"]
    token = bare(material.first.reads)
    source = material.first.texts["source"]
    says = [
        say(
            "Each token of the vocabulary has a vector e that the model learned, here of {width} numbers. "
                    "The picture shows the "
            "first {first} of “{token}”.",
            width=len(e), first=min(FIRST, len(e)), token=token,
        )
    ]  # fmt: skip
    questions = []
    if "scale_embedding" in steps:
        says.append(say("The vector is multiplied by √{width}, so that it is as large as the layers expect.", width=len(e)))
    if "position_added" in steps:
        says.append(say("Then a vector for the position is added: without it the model could not tell the order of the words."))
        questions += [_same_vector(token), _position_sum(steps)]
    else:
        questions.append(_where_positions_enter(next(name for name in steps if name in WHERE)))
    tokens = picture(
        "tokens",
        "tokens",
        say("The sentence as the model reads it"),
        [say("The model cannot read letters. A tokenizer cuts the sentence into tokens: words, or pieces of rare words.")],
        tokens=[{"text": bare(one), "mark": source.word_ids[n] is None} for n, one in enumerate(source.tokens)],
        chosen=material.first.position if material.first.reads in source.tokens else None,
    )
    vectors = vectors_picture("vector", say("The vector of “{token}”", token=token), _input_rows(steps, bool(questions)), says)
    return LessonStep("vectors", say("Words become vectors"), [tokens, vectors], questions)


def _input_rows(steps: dict[str, Step], asked: bool) -> list[dict[str, Any]]:
    """Return the rows from the token's vector to the input of the first layer."""
    rows = [vector_row("e", steps["token"]["token"])]
    if "scale_embedding" in steps:
        rows.append(vector_row(f"e · {shown(float(steps['scale_embedding']['scale']), 1)}", steps["scale_embedding"]["x"]))
    for name, symbol in (("segment", "s"), ("task", "t")):
        if name in steps:
            rows += [vector_row(symbol, steps[name]["added"]), vector_row("x", steps[name]["x"])]
    for name in ("embedding_norm", "position_added", "embedding_projection"):
        if name in steps and name == "position_added":
            rows.append(vector_row("p", steps[name]["position"]))
            rows.append(vector_row("x", steps[name]["x"], after="position", hidden=[0] if asked else []))
        elif name in steps:
            rows.append(vector_row("norm(x)" if name == "embedding_norm" else "W x", steps[name]["x"]))
    return rows


def _same_vector(token: str) -> LessonQuestion:
    return ask_choice(
        "same",
        say("Suppose “{token}” stands twice in a sentence. Is its x the same both times?", token=token),
        [say("Yes, it is the same word"), say("No, since the positions differ")],
        1,
        say("e is the same both times. What is added to it?"),
        say("e is the same, and the vector p of the position differs: so x differs."),
    )


def _position_sum(steps: dict[str, Step]) -> LessonQuestion:
    x, p = steps["position_added"]["x"], steps["position_added"]["position"]
    before = float(x[0] - p[0])
    return ask_number(
        "position",
        say("The first number of x is the sum of {a} and {b}. What is it?", a=shown(before), b=shown(float(p[0]))),
        float(x[0]),
        round(before, 2) + round(float(p[0]), 2),
        say("A negative number makes the sum smaller."),
        say(
            "{a} + {b} = {x}: each number of p is added to its number of the vector.",
            a=shown(before),
            b=signed(float(p[0])),
            x=shown(float(x[0])),
        ),
    )


def _where_positions_enter(name: str) -> LessonQuestion:
    options = [say("here: a vector for the position is added"), *WHERE.values()]
    return ask_choice(
        "where",
        say("Where do you think the order of the words enters this model?"),
        options,
        options.index(WHERE[name]),
        say("Look at the picture: nothing is added to e that depends on the position."),
        say("Models differ in this. This one brings in the order in a way of its own, without a vector that is added."),
    )


def strongest_keys(material: Material, count: int = KEYS) -> list[int]:
    """Return the keys with the largest weights, in the order of the sentence."""
    return sorted(material.weights.topk(min(count, len(material.weights))).indices.tolist())


def head_step(material: Material) -> LessonStep:
    """Return step 2: the query, and the keys and values of some tokens."""
    names = distinct(material.head.keys)
    query = material.step(*QUERIES)
    keys = material.step("keys", "keys_source", "keys_states", "keys_projected", "keys_convolution")
    values = material.step("values", "values_source", "values_states", "values_convolution")
    assert query is not None and keys is not None and values is not None
    q, k, v = query["q"], keys["k"], values["v"]
    best, few = material.best, strongest_keys(material)
    questions = [_compared()]
    split = material.heads > 1 and material.heads * len(q) == material.width
    if split:
        questions.insert(0, _head_width(material.width, material.heads))
    if len(q) == k.size(1) and material.step("dot"):
        questions.append(_one_product(names[best], q, k[best]))
    after = "width" if split else None
    rows = [vector_row("q", q, bare(material.head.reads), after)]
    rows += [vector_row(name, table[n], names[n], after) for name, table in (("k", k), ("v", v)) for n in few]
    title = say("Query, keys and values: the first {first} numbers of each", first=min(FIRST, len(q)))
    who, *how = _head_says(material)
    pictures = [_so_far(material, who), vectors_picture("qkv", title, rows, how)]
    return LessonStep("head", say("Queries, keys and values"), pictures, questions)


def _so_far(material: Material, says: LessonText) -> dict[str, Any]:
    """Return the picture of the tokens up to the one that attends."""
    titles = {
        "translator": say("What the model has written so far"),
        "generator": say("The text so far"),
        "encoder": say("The text with its gap"),
    }
    tokens = [{"text": bare(token), "mark": special} for token, special in material.so_far]
    position = material.head.position if material.head.kind == "encoder" else len(tokens) - 1
    return picture("tokens", "so-far", titles[material.head.kind], [says], tokens=tokens, chosen=position)


def _head_says(material: Material) -> list[LessonText]:
    found, reads = material.head, bare(material.head.reads)
    if found.part == CROSS:
        who = say(
            "The model has begun to write. It has just read “{reads}” and asks the sentence what it needs for its next word.",
            reads=reads,
        )
    elif material.head.kind == "encoder":
        who = say("The token “{reads}” stands for a hidden word. It asks the other tokens what the word could be.", reads=reads)
    else:
        who = say(
            "“{reads}” is the last token so far. It asks the tokens before it what they know about the next word.", reads=reads
        )
    if material.step("state", "query_convolution") is None:
        how = say(
            "A learned matrix turns its vector into a query q: what it looks for. Two more matrices turn the "
            "vector of each token "
            "into a key k, by which it is found, and a value v, which it hands over."
        )
    else:
        how = say(
            "Its state gives the query q: what it looks for. The encoder's vector of each token is its key k, by which it is "
            "found, and its value v, which it hands over."
        )
    where = say(
        "You see one head of {heads} in layer {layer} of {layers}; every head has matrices of its own.",
        heads=material.heads, layer=found.layer + 1, layers=material.depth,
    )  # fmt: skip
    return [who, how, *([where] if material.heads > 1 else [])]


def _compared() -> LessonQuestion:
    return ask_choice(
        "compared",
        say("With what will the query be compared, to find out where to look?"),
        [say("With the keys"), say("With the values"), say("With the other queries")],
        0,
        say("Think of a search in a library: what you look for is compared with what stands on the backs of the books."),
        say("The query is compared with each key. The values are what is taken home, in step 4."),
    )


def _head_width(width: int, heads: int) -> LessonQuestion:
    return ask_number(
        "width",
        say("The vector has {width} numbers, and {heads} heads share the work equally. How many numbers has one "
                "query?", width=width, heads=heads),
        width / heads,
        width / heads,
        say("Divide."),
        say("{width} / {heads} = {d}.", width=width, heads=heads, d=width // heads),
        digits=0,
    )  # fmt: skip


def _one_product(token: str, q: Tensor, k: Tensor) -> LessonQuestion:
    """Ask for the largest product among the numbers that are shown."""
    place = int((q[:FIRST] * k[:FIRST]).abs().argmax())
    a, b = float(q[place]), float(k[place])
    return ask_number(
        "product",
        say(
            "Comparing means multiplying number by number. Number {n} of q is {a}, and number {n} of the k of “{token}” is {b}. "
            "What is their product?",
            n=place + 1, token=token, a=shown(a), b=shown(b),
        ),
        a * b,
        round(a, 2) * round(b, 2),
        say("Two numbers with the same sign have a positive product: they agree."),
        say(
            "{a} · {b} = {x}. All {count} products are added, which is the next step.",
            a=shown(a), b=signed(b), x=shown(a * b), count=len(q),
        ),
    )  # fmt: skip
