"""With little data a small BPE vocabulary translates better than a large one (Ding et al. 2019; Sennrich and Zhang 2019).

The same small Transformer translates the artificial language with 60 or 200 pieces, nearly characters or stems and endings, or
with whole words, where a large vocabulary ends. The claim is about little data, so that the same is done with eight times the
sentences: there whole words should lose less. Updates and sentences in an update are the same for all.
"""

from collections import Counter

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, translations
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Higher
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

SENTENCES = 16  # in an update
SELDOM = 5  # a word that was met fewer times


def measure(cell: Cell) -> Measured:
    """Train a translator; return the share of the words of the test's targets that its translations have."""
    language = Language(cell.seed, **cell["language"])
    count = cell["pairs"] * cell["times"]
    pairs = translations([one for one in language.sentences(4 * count + 2000, cell.seed) if one.between == 0])[: count + 400]
    test, dev, train = pairs[:300], pairs[300:400], pairs[400:]
    config = {"kind": "bpe", "vocab": cell["pieces"]}
    tokenizer = train_tokenizer(TokenizerConfig(**config), (text for pair in train for text in pair))
    lengths = [len(ids) + 1 for ids in tokenizer.encode_batch([target for _, target in train])]
    more = {
        "tokenizer.shared": config, "training.batch_tokens": SENTENCES * sum(lengths) // len(lengths), "training.row_width": None,
    }  # fmt: skip
    run = train_pairs(cell, "transformer-small", {**TRANSFORMER, **more}, train, dev, steps=cell["steps"])
    right = total = 0
    for output, (_, target) in zip(run.translate([source for source, _ in test]), test, strict=True):
        right += (Counter(output.split()) & Counter(target.split())).total()
        total += max(len(output.split()), len(target.split()))
    met = Counter(word for _, target in train for word in target.split())
    rare = [met[word] < SELDOM for _, target in test for word in target.split()]
    return {
        "right": right / total, "rare": sum(rare) / len(rare), "tokens": sum(lengths) / len(lengths),
        "vocabulary": float(len(tokenizer)),
    }  # fmt: skip


CLAIM = Claim(
    topic="words",
    statement="With little data a small BPE vocabulary translates better than a large one.",
    source="Ding et al. 2019, A Call for Prudent Choice of Subword Merge Operations; Sennrich and Zhang 2019",
    measured="The share of right words, in any order, in translations by a small Transformer after as many updates with as "
    "many sentences, with a vocabulary of 60 pieces, of 200 or of whole words, from 1,000 pairs or "
    "from eight times as many.",
    prediction="From little data, 200 pieces are at least 2 points better than whole words, and at least 2 points better than "
    "60, which is too small. From eight times the data the lead of 200 pieces is at least 2 points smaller.",
    explanation="A large vocabulary has a piece for almost every form of every word, and each must be met often enough to "
    "be learned. A small one knows stems and endings and meets them all the time. But single letters are too small: they mean "
    "nothing by themselves, and texts get long.",
    formula="sightings of a piece ≈ tokens of the text / pieces of the vocabulary",
    changes="More data moves the best size up. A language without endings gains less. Dropout in BPE or smoothing may save "
    "large vocabularies.",
    revised="The language had 12 nouns and 6 verbs a topic, and the large vocabulary, of 3,000 pieces at most, was whole words. "
    "Its nouns and verbs are three times as many, so that a quarter of the test's words was met seldom. Effects stayed.",
    variants={
        "60 pieces": {"pieces": 60, "times": 1},
        "200 pieces": {"pieces": 200, "times": 1},
        "whole words": {"pieces": 3000, "times": 1},
        "200 pieces, more data": {"pieces": 200, "times": 8},
        "whole words, more data": {"pieces": 3000, "times": 8},
    },
    sizes={
        "cpu": {"language": {"topics": 4, "nouns": 40, "verbs": 20, "adjectives": 12, "roles": 1}, "pairs": 1000, "steps": 1000},
        "quick": {"pairs": 600, "steps": 200},
    },
    measure=measure,
    units={
        "right": "right words", "rare": "words met fewer than 5 times in training", "tokens": "tokens in a sentence",
        "vocabulary": "pieces in the vocabulary",
    },
    parts=(
        Higher("small is better than large", "right", "200 pieces", "whole words", by=0.02),
    ),
    further=(
        Higher("too small is worse", "right", "200 pieces", "60 pieces", by=0.02),
        Higher(
            "with more data it matters less", "right", ("200 pieces", "whole words"),
            ("200 pieces, more data", "whole words, more data"), by=0.02,
        ),
    ),
    controls=(
        Higher("the language is learned", "right", "200 pieces, more data", than=0.0, by=0.5),
        Higher("little data has words that are met seldom", "rare", "whole words", than=0.0, by=0.05),
    ),
    picture=[strip("right"), strip("tokens", span=(0,))],
)  # fmt: skip
