"""Heads specialise: some look at neighbours, some at delimiters, some along syntax (Clark et al. 2019; Voita et al. 2019).

A Transformer learns to translate the artificial language, and we look at the heads of its encoder, as Voita et al. do. The
translation of a noun marks definiteness, so that a noun must find its determiner, one word back or two, with an adjective
between. The rival explanation of a syntactic head is position: one that looks one word back finds most determiners. So a head
counts by the worse of the two distances. The other rival is chance: the strongest of many heads is strong in an untrained
network too.
"""

import torch

from qkv.base.rows import padded_rows, unpadded_rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SMALL, STOP, Language, Sentence, translations
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, Trained, train_pairs
from qkv.claims.verdict import Higher, Lower
from qkv.folder.run import load_tokenizers
from qkv.lens.capture import capture

UNTRAINED = {"training.learning_rate": 1e-12}


@torch.no_grad()
def encoder_weights(run: Trained, sentences: list[Sentence]) -> list[torch.Tensor]:
    """Return the attention weights of all heads of the encoder over each sentence. -> (heads of all layers, T, T) each."""
    found = load_tokenizers(run.folder)
    assert found is not None
    ids = [torch.tensor(one) for one in found.source.encode_batch([sentence.text for sentence in sentences])]
    source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    real = torch.arange(source.size(1)) < torch.tensor([[len(one)] for one in ids])
    begin = torch.full((len(ids), 1), found.target.bos)
    model = run.model.to("cpu")
    with capture(model) as weights:
        model(padded_rows(source, real), unpadded_rows(begin))
    layers = torch.cat([weights[name] for name in weights if name.startswith("encoder")], 1)
    return [one[:, : len(some), : len(some)] for one, some in zip(layers, ids, strict=True)]


def determiners(sentence: Sentence, back: int) -> tuple[list[int], list[int]]:
    """Return the positions of nouns whose determiner stands so many words back, and of these determiners."""
    tags = sentence.tags
    nouns = [i for i, tag in enumerate(tags) if tag == "noun" and i >= back and tags[i - back] == "determiner"]
    nouns = [i for i in nouns if back == 1 or tags[i - 1] == "adjective"]
    return nouns, [i - back for i in nouns]


def measure(cell: Cell) -> Measured:
    """Train a translator; return the share of attention of the strongest head of each kind."""
    language = Language(cell.seed, **SMALL, roles=1)
    pairs = translations(language.sentences(cell["sentences"], cell.seed))
    settings, steps = (TRANSFORMER, cell["steps"]) if cell["trained"] else ({**TRANSFORMER, **UNTRAINED}, 1)
    run = train_pairs(cell, "transformer-small", settings, pairs[200:], pairs[:200], steps=steps)
    sums = {name: list[torch.Tensor]() for name in ("before", "after", "stop", "near", "far")}
    test = language.sentences(200, 1000 + cell.seed)
    for one, weights in zip(test, encoder_weights(run, test), strict=True):
        words = range(1, len(one.words) - 1)
        stop = one.words.index(STOP)
        looks = {
            "before": (words, [i - 1 for i in words]), "after": (words, [i + 1 for i in words]),
            "stop": (range(stop), [stop] * stop), "near": determiners(one, 1), "far": determiners(one, 2),
        }  # fmt: skip
        for name, (rows, columns) in looks.items():
            sums[name].append(weights[:, list(rows), list(columns)])
    share = {name: torch.cat(some, 1).mean(1) for name, some in sums.items()}  # of each head
    return {
        "neighbour": float(torch.maximum(share["before"], share["after"]).max()),
        "delimiter": float(share["stop"].max()),
        "syntax": float(torch.minimum(share["near"], share["far"]).max()),
        "loss": run.loss(),
    }


NAMES = {"neighbour": "a neighbour", "delimiter": "the full stop", "syntax": "its noun's determiner"}
CLAIM = Claim(
    topic="looking",
    statement="Heads specialise: some look at neighbours, some at delimiters, some along syntax.",
    source="Clark et al. 2019, What Does BERT Look At?, sections 3 and 4; Voita et al. 2019, Analyzing Multi-Head Self-Attention",
    measured="The share of attention that the strongest of the 8 encoder heads of a small translator puts on the word before or "
    "after, on the full stop, and from a noun on its determiner (the worse of one word back and two).",
    prediction="Each of the three at least 50 %, and at least 20 points above the strongest head of an untrained network.",
    explanation="In an orchestra nobody plays everything. After training one head always looks to the left, another rests at the "
    "full stop when it has nothing to do, and a third finds the article of each noun, however far away it stands.",
    formula="share(h) = mean over t of αₕ(t, s(t)), s(t) the neighbour, the full stop, the determiner of t",
    changes="More layers and heads have more room for special tasks, and a task must need them: no head learns what "
    "the translation does not ask for. A head that looks somewhere need not matter (see looking-heads).",
    variants={"trained": {"trained": True}, "untrained": {"trained": False}},
    sizes={"cpu": {"sentences": 8000, "steps": 800}, "quick": {"steps": 300}},
    measure=measure,
    units={**{name: f"attention of the strongest head on {what}" for name, what in NAMES.items()}, "loss": "loss, nats a token"},
    parts=(
        *(Higher(f"a head looks at {what}", name, "trained", than=0.0, by=0.5) for name, what in NAMES.items()),
        *(Higher(f"training makes it look at {what}", name, "trained", "untrained", by=0.2) for name, what in NAMES.items()),
    ),
    controls=(Lower("translation is learned", "loss", "trained", than=2.0, by=1.0),),
    picture=[strip("neighbour", "delimiter", "syntax", span=(0, 1))],
)
