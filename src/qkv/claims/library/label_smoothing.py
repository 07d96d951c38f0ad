"""Label smoothing hurts perplexity and helps BLEU (Vaswani et al. 2017, section 5.4).

A small Transformer translates sentences of an artificial language, trained on few of them, with smoothed labels and without. The
loss that is measured is never smoothed. A smoothed model is less sure than it should be, which one number, a temperature, can
repair: the loss at the best temperature shows how much of the higher perplexity that is.
"""

from torch import Tensor, nn

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SMALL, translation_examples
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, Trained, train_pairs
from qkv.claims.verdict import Always, AtMost, Higher
from qkv.text.translation_metrics import score_corpus

TEMPERATURES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)


def loss_at(run: Trained, temperature: float) -> float:
    """Return the loss with all logits divided by a temperature; the output layer has no bias, so its input can be divided."""

    def divide(_: nn.Module, __: object, hidden: Tensor) -> Tensor:
        return hidden / temperature

    hook = run.model.decoder_norm.register_forward_hook(divide)
    try:
        return run.loss()
    finally:
        hook.remove()


def measure(cell: Cell) -> Measured:
    """Train; return the loss on dev and the BLEU of test."""
    pairs = translation_examples(cell.seed, cell["pairs"], cell["held out"], **SMALL)
    run = train_pairs(cell, "transformer-small", TRANSFORMER, pairs.train, pairs.dev, steps=cell["steps"])
    sources, references = zip(*pairs.test, strict=True)
    outputs, wanted = ([text.removesuffix(" .") for text in side] for side in (run.translate(sources), references))
    (bleu,) = score_corpus(outputs, wanted, ["bleu"])
    return {"loss": run.loss(), "tempered": min(loss_at(run, t) for t in TEMPERATURES), "bleu": bleu.value}


CLAIM = Claim(
    topic="training deep nets",
    statement="Label smoothing hurts perplexity and helps BLEU.",
    source="Vaswani et al. 2017, Attention Is All You Need, section 5.4",
    measured="The loss on held-out sentences of an artificial language (the logarithm of perplexity, without smoothing), and "
    "BLEU of greedy translations of others, after training on few sentences.",
    prediction="With a smoothing of 0.1 the loss is at least 0.03 nats higher, and BLEU at least 0.5 points higher. Further: "
    "at the best temperature the smoothed model's loss is at most 0.03 nats higher.",
    explanation="A pupil who must always say \"100 % sure\" is punished hard for each mistake and stops thinking about "
    "alternatives. Label smoothing asks for 90 % only. The pupil then sounds less sure than he could be, which costs points for "
    "sureness (perplexity), but may choose better words (BLEU).",
    formula="target = (1 − ε) · one-hot + ε / V, with ε = 0.1",
    changes="The amount of text, the rate of dropout, and beam search, which smoothing affects too. Sentences here have one "
    "right translation; where there are many, smoothing has more to say.",
    revised="That nothing is lost at the best temperature was predicted without a number; it became a rule after the figures.",
    variants={"no smoothing": {"objective.smoothing": 0.0}, "smoothing 0.1": {"objective.smoothing": 0.1}},
    sizes={
        "cpu": {"pairs": 4000, "held out": 500, "steps": 1000, "model.dropout": 0.1},
        "quick": {"pairs": 2000, "held out": 200, "steps": 250},
    },
    measure=measure,
    units={
        "loss": "loss on held-out texts, nats a token",
        "tempered": "loss at the best temperature, nats a token",
        "bleu": "BLEU of greedy translations",
    },
    parts=(
        Higher("smoothing hurts perplexity", "loss", "smoothing 0.1", "no smoothing", by=0.03),
        Higher("smoothing helps BLEU", "bleu", "smoothing 0.1", "no smoothing", by=0.5),
    ),
    further=(AtMost("not at the best temperature", "tempered", ("smoothing 0.1", "no smoothing"), at_most=0.03),),
    controls=(
        Always("the task is learned", "bleu", "no smoothing", at_least=20.0),
        Always("there is room for better translations", "bleu", "no smoothing", at_most=97.0),
    ),
    picture=[strip("loss"), strip("tempered"), strip("bleu")],
)  # fmt: skip
