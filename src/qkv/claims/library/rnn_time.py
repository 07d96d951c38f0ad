"""An RNN's operations wait for each other however wide the machine is, a Transformer's do not (Vaswani et al. 2017, section 4,
table 1: sequential operations).

Three measures. The longest chain of operations of which each needs the one before, in torch's graph of the computation: no
machine can do it in fewer steps. The time of a pass over one text, by its length. And a wider machine: what a second core gains.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qkv.base.rows import unpadded_rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.pictures import curves, strip
from qkv.claims.timing import seconds
from qkv.claims.verdict import Always, AtMost, Higher
from qkv.models.bert import Bert, BertConfig
from qkv.models.rnn import Rnn, RnnConfig

LENGTHS, VOCABULARY, LAYERS = (8, 32, 128, 512, 1024), 100, 2


def longest_chain(output: Tensor) -> int:
    """Return the number of operations on the longest way from the inputs to an output."""
    chain, waiting = dict[object, int](), [output.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [one for one, _ in node.next_functions if one is not None]  # type: ignore[union-attr]
        unknown = [one for one in before if one not in chain]
        if unknown:
            waiting += unknown
        else:
            chain[node] = 1 + max((chain[one] for one in before), default=0)
            waiting.pop()
    return chain[output.grad_fn]


def build(kind: str, width: int):  # type: ignore[no-untyped-def]
    """Return a function from rows to the states of an encoder of two layers, and the same with each step as operations."""
    if kind == "Transformer":
        shape: Any = {"width": width, "feedforward": 2 * width, "heads": 4, "layers": LAYERS, "max_positions": LENGTHS[-1]}
        bert = Bert(BertConfig(**shape, dropout=0.0), VOCABULARY)
        return bert, bert
    config = RnnConfig(width=width, embedding_width=width, layers=LAYERS, attention="none", dropout=0.0)
    rnn = Rnn(config, VOCABULARY, VOCABULARY)

    def step_by_step(rows):  # type: ignore[no-untyped-def]
        x = rnn.embed(rnn.source_embedding, rows.ids)
        for layer in rnn.encoder.layers:
            state, states = (x.new_zeros(len(x), width),) * 2, []
            for at in x.unbind(1):
                state = layer.left_to_right.step(at, state)
                states.append(state[0])
            x = torch.stack(states, 1)
        return x

    return lambda rows: rnn.encode(rows)[0], step_by_step


def gain_of_two_cores(work: Callable[[], object]) -> float:
    """Return the time of some work on one core, relative to that on two."""
    threads, found = torch.get_num_threads(), []
    try:
        for cores in (1, 2):
            torch.set_num_threads(cores)
            found.append(seconds(work, enough=0.3))
    finally:
        torch.set_num_threads(threads)
    return found[0] / found[1]


def measure(cell: Cell) -> Measured:
    """Count the longest chain, and time passes over one text by its length and by the number of cores."""
    torch.manual_seed(cell.seed)
    texts = [torch.randint(VOCABULARY, (1, length)) for length in LENGTHS]
    rows = [unpadded_rows(ids) for ids in texts]
    encode, chained = build(cell["kind"], cell["width"])
    chains = [float(longest_chain(chained(one))) for one in rows]
    numbers = torch.randn(1024, 1024)
    with torch.no_grad():
        times = [seconds(partial(encode, one)) for one in rows]
        gains = [gain_of_two_cores(work) for work in (lambda: encode(rows[-1]), lambda: numbers @ numbers)]
    return {
        "chains": chains, "chain growth": chains[-1] / chains[0], "milliseconds": [1000 * time for time in times],
        "growth": times[-1] / times[-3], "gain": gains[0], "free": gains[1],
    }  # fmt: skip


CLAIM = Claim(
    topic="cost",
    statement="An RNN needs more steps the longer the text, however wide the machine is; a Transformer needs as many for any "
    "length.",
    source="Vaswani et al. 2017, section 4 and table 1",
    measured="The longest chain of operations that wait for each other, and the time, of encoders of two layers of width 256, "
    "for texts of 8 to 1,024 words; and how much faster two cores are than one, for 1,024 words.",
    prediction="From 8 to 1,024 words the RNN's chain grows at least 100 times, the Transformer's not at all. From 128 to 1,024 "
    "words the RNN takes at least 6 times as long. A second core makes the Transformer at least 1.4 times as fast, the RNN less "
    "than 1.3 times.",
    explanation="In an RNN each word waits for the word before, like people who pass on a bucket: more hands do not help, a "
    "longer row takes longer. In a Transformer all words work at the same time, like people who all have a bucket: as long as "
    "there are enough hands for all, a longer text takes no longer.",
    formula="sequential operations: RNN O(n), attention O(1)",
    changes="That a Transformer's time stays the same until the machine is full is not tested: a core is full after a few "
    "words, a GPU after thousands. Many texts at once keep an RNN's machine busy too.",
    revised="The statement spoke of the time, of which no rule said anything for the Transformer: on a core it grows at once.",
    variants={"RNN": {"kind": "RNN"}, "Transformer": {"kind": "Transformer"}},
    sizes={"cpu": {"width": 256}, "quick": {}},
    measure=measure,
    units={
        "chains": "longest chain of operations",
        "chain growth": "growth of the chain from 8 to 1,024 words, times",
        "milliseconds": "milliseconds of one text",
        "growth": "growth of the time from 128 to 1,024 words, times",
        "gain": "time on one core / time on two",
        "free": "the same for a product of matrices",
    },
    parts=(
        Always("the RNN's chain grows with the length", "chain growth", "RNN", at_least=100.0),
        Always("the Transformer's does not", "chain growth", "Transformer", at_most=1.0),
        Higher("the RNN's time grows with the length", "growth", "RNN", than=1.0, times=6.0),
        Higher("a second core helps the Transformer", "gain", "Transformer", than=1.0, times=1.4),
        AtMost("a second core hardly helps the RNN", "gain", "RNN", at_most=1.3),
    ),
    controls=tuple(Always(f"{kind}: the second core is free", "free", kind, at_least=1.4) for kind in ("RNN", "Transformer")),
    picture=[
        curves("chains", LENGTHS, "words in the text", log=True),
        curves("milliseconds", LENGTHS, "words in the text", log=True),
        strip("gain", marks={"none": 1.0}),
    ],
    timed=True,
)  # fmt: skip
