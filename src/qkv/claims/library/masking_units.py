"""Masking whole words, or n-grams of them, is better than masking single pieces (Devlin et al. 2019; Joshi et al. 2020; ALBERT).

A word of several pieces, one of which is masked, gives its answer away by the others, so that little is learned about words
around it. Words are cut into pieces here by a small WordPiece vocabulary. All variants mask 15 % of the pieces, on the same text,
with as many updates. Losses on different masks cannot be compared, so that fine-tuning is, also of weights that were not
pretrained; how well masked pieces are predicted shows whether single ones are easier.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SIMPLE, SIMPLE_ON_GPU, Language, sentence_text
from qkv.claims.pictures import strip
from qkv.claims.probes import tokenizer_of, verb_accuracy
from qkv.claims.training import GPU_ENCODER, NO_PRETRAINING, SENTENCE_ENCODER, train_text
from qkv.claims.verdict import Always, Higher

PRETRAINED = ("pieces", "whole words", "n-grams")


def measure(cell: Cell) -> Measured:
    """Pretrain with one kind of units; fine-tune to tell right from wrong verbs."""
    language = Language(cell.seed, **cell["language"])
    train, dev = sentence_text(language, cell["sentences"], cell.seed)
    pieces = {"kind": "wordpiece", "vocab": cell["pieces"], "special_tokens": ["[MASK]"]}
    settings = {**SENTENCE_ENCODER, "tokenizer": pieces, "data.length": 64, "objective.units": cell["units"]}
    run = train_text(cell, "bert-mini", settings, train, dev, steps=cell["steps"], finish=True)
    texts = [text for (text,) in dev]
    count = sum(map(len, tokenizer_of(run).encode_batch(texts)))
    return {
        "tuned": verb_accuracy(cell, run, language),
        "guessed": run.scores()["dev_masked_accuracy"],
        "pieces": count / sum(len(text.split()) for text in texts),
    }


CLAIM = Claim(
    topic="pretraining",
    statement="Masking whole words, or n-grams of words, is better than masking single pieces of words.",
    source="Devlin et al. 2019 (whole-word masking, release of May 2019); Joshi et al. 2020, SpanBERT, table 6; Lan et al. 2020, "
    "ALBERT, section 4.1",
    measured="The accuracy in telling right from wrong verbs (chance 50 %) after fine-tuning, and how often masked pieces are "
    "predicted in pretraining.",
    prediction="Whole words and n-grams are each at least 1 point better than single pieces. The reason given predicts that "
    "single pieces are guessed more often, by at least 5 points.",
    explanation="Cover one letter of a word, and you guess it from the other letters. Cover the whole word, and you must read "
    "the sentence.",
    formula="p(piece | other pieces of its word, sentence) against p(piece | sentence)",
    changes="Here an ending tells a verb's number, and a masked ending alone is a good lesson on agreement. In natural text "
    "most pieces of a word say nothing about others.",
    revised="After figures in which networks without pretraining were as good, controls ask for 2 points more than those. 900 "
    "updates became 2,000 after a pilot with seed 1, and one fine-tuning a cell five after a run. Sizes of effects "
    "stayed.",
    variants={
        "pieces": {"units": "token"},
        "whole words": {"units": "word"},
        "n-grams": {"units": "ngram"},
        "no pretraining": {"units": "token", **NO_PRETRAINING},
    },
    sizes={
        "cpu": {
            "language": SIMPLE, "pieces": 80, "sentences": 20000, "steps": 2000, "training.batch_tokens": 2048,
            "examples": 500, "tuning": 100, "tunings": 5, "tuning_rate": 0.002,
        },
        "quick": {"sentences": 10000, "steps": 400, "training.batch_tokens": 1024, "tunings": 1},
        "gpu": {
            **GPU_ENCODER, "language": SIMPLE_ON_GPU, "pieces": 100,
            "sentences": 100000, "steps": 3000, "examples": 500, "tuning": 200, "tunings": 5, "tuning_rate": 0.001,
        },
    },
    measure=measure,
    units={
        "tuned": "right and wrong verbs told apart",
        "guessed": "masked pieces predicted",
        "pieces": "pieces of a word, on average",
    },
    parts=(
        Higher("whole words are better", "tuned", "whole words", "pieces", by=0.01),
        Higher("n-grams are better", "tuned", "n-grams", "pieces", by=0.01),
    ),
    further=(
        Higher("single pieces are easier to guess", "guessed", "pieces", "whole words", by=0.05),
    ),
    controls=(
        *(Higher(f"pretraining helps: {name}", "tuned", name, "no pretraining", by=0.02) for name in PRETRAINED[1:]),
        Always("words have several pieces", "pieces", "pieces", at_least=1.5),
    ),
    picture=[strip("tuned", marks={"chance": 0.5}, span=(0.5, 1)), strip("guessed", variants=PRETRAINED, span=(0, 1))],
)  # fmt: skip
