"""Padding changes nothing (a promise of every implementation): neither outputs nor gradients depend on what fills up a batch.

Texts of different lengths make a batch in three ways: each by itself; side by side, filled up with padding; or packed into
long rows with other texts. Masks must keep texts apart. A mean over positions, a norm over the batch or a convolution would
break it.
"""

import torch
from torch import Tensor

from qkv.base.rows import Rows, next_tokens
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import strip
from qkv.claims.verdict import Always
from qkv.models import seeded_initialisation
from qkv.models.gpt import Gpt, GptConfig
from qkv.parts.loss import cross_entropy_sum

VOCABULARY, LENGTHS = 50, (3, 17, 8, 24, 5, 12)
CONFIG = GptConfig(width=64, feedforward=128, heads=4, layers=3, dropout=0.0, max_positions=64)


def in_rows(texts: list[Tensor], rows: list[list[int]], width: int, padding: int) -> Rows:
    """Lay texts out in rows, each with some of the texts side by side, and fill them up with a padding token."""
    ids = torch.full((len(rows), width), padding)
    text, position = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, numbers in enumerate(rows):
        start = 0
        for count, number in enumerate(numbers, 1):
            end = start + len(texts[number])
            ids[row, start:end], text[row, start:end] = texts[number], count
            position[row, start:end] = torch.arange(end - start)
            start = end
    return Rows(ids, text, position)


def gradients(model: Gpt, batches: list[Rows]) -> Tensor:
    """Return the gradients of the next-word losses of all batches together, as one vector."""
    model.zero_grad()
    for rows in batches:
        weight = model.embedding.token_embedding.weight
        cross_entropy_sum(model(rows).flatten(0, 1), weight, next_tokens(rows).flatten()).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def measure(cell: Cell) -> Measured:
    """Compare the gradients of texts in rows with those of each text by itself."""
    with seeded_initialisation(cell.seed):
        model = Gpt(CONFIG, VOCABULARY)
    generator = torch.Generator().manual_seed(cell.seed)
    texts = [torch.randint(1, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    single = gradients(model, [in_rows([text], [[0]], len(text), 0) for text in texts])
    rows = in_rows(texts, cell["rows"], cell["width"], padding=cell.seed % VOCABULARY)
    if cell["no mask"]:  # what would happen if padding and other texts were read as parts of a text
        rows = rows._replace(text=torch.ones_like(rows.text))
    changed = gradients(model, [rows])
    return {"change": float((changed - single).abs().max() / single.abs().max())}


EACH = [[number] for number in range(len(LENGTHS))]
CLAIM = Claim(
    topic="attention itself",
    statement="Padding changes nothing.",
    source="folklore; Vaswani et al. 2017 batch texts of similar length to have little of it",
    measured="The largest difference between the gradients of six texts of 3 to 24 tokens in one batch and of each by "
    "itself, relative to the largest gradient, in a GPT of 3 layers.",
    prediction="The same to rounding (at most 0.00001), padded to any width and packed with others in a row; without the "
    "masks more than 0.01.",
    explanation="Computers like rectangles, and texts have different lengths. So short texts are filled up with a blank that"
    " nobody may look at. If the mask is right, the blanks are like empty seats: they cost room and say nothing.",
    formula="softmax(scores − ∞ · [key is padding or another text])",
    changes="Layers that mix positions without a mask: convolutions, batch norm, means over a row. On a GPU, other kernels "
    "for other widths change rounding.",
    variants={
        "padded": {"rows": EACH, "width": 24, "no mask": False},
        "padded to twice the width": {"rows": EACH, "width": 48, "no mask": False},
        "packed": {"rows": [[0, 1, 2], [3], [4, 5]], "width": 32, "no mask": False},
        "padded, no mask": {"rows": EACH, "width": 24, "no mask": True},
    },
    sizes={"cpu": {}, "quick": {}},
    measure=measure,
    units={"change": "difference of gradients, relative"},
    parts=tuple(
        Always(f"{variant}, the gradients are the same", "change", variant, at_most=1e-5)
        for variant in ("padded", "padded to twice the width", "packed")
    ),
    controls=(Always("the measure sees a missing mask", "change", "padded, no mask", at_least=0.01),),
    picture=[strip("change", log=True, marks={"rounding": 1e-5})],
)
