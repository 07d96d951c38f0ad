"""Words cannot translate what they never saw, characters can but are long, pieces join both (Sennrich et al. 2016, section 1).

The same small Transformer translates the artificial language, whose nouns and verbs have endings for case and number. A fifth of
the plurals is kept out of the training text, where their other forms are. Updates and sentences in an update are the same for
all, not tokens. The rival explanation is that a smaller vocabulary is easier to learn at all; then pieces would be better at
seen words too.
"""

from collections import Counter

from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Language, translations
from qkv.claims.pictures import strip
from qkv.claims.training import TRANSFORMER, train_pairs
from qkv.claims.verdict import Always, Higher, Same
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer

SENTENCES = 16  # in an update


def measure(cell: Cell) -> Measured:
    """Train a translator; return the share of seen and of unseen target words that its translations have."""
    language = Language(cell.seed, topics=4, nouns=12, verbs=6, adjectives=4, roles=1)
    pairs = translations([one for one in language.sentences(8 * cell["pairs"], cell.seed) if one.between == 0])
    plurals = sorted({word for _, target in pairs for word in target.split() if word.endswith("m")})
    unseen_forms = {plurals[i] for i in rng_at(cell.seed, "unseen").permutation(len(plurals))[: len(plurals) // 5]}
    test = [pair for pair in pairs if unseen_forms & {*pair[1].split()}][:300]
    kept = [pair for pair in pairs if not unseen_forms & {*pair[1].split()}][: 100 + cell["pairs"]]
    dev, train = kept[:100], kept[100:]
    tokenizer = train_tokenizer(TokenizerConfig(**cell["tokenizer.shared"]), (text for pair in train for text in pair))
    lengths = [len(ids) + 1 for ids in tokenizer.encode_batch([target for _, target in train])]
    batch = {"training.batch_tokens": SENTENCES * sum(lengths) // len(lengths), "training.row_width": None}
    run = train_pairs(cell, "transformer-small", {**TRANSFORMER, **batch}, train, dev, steps=cell["steps"])
    known = {word for _, target in train for word in target.split()}
    found = {True: [0, 0], False: [0, 0]}
    for output, (_, target) in zip(run.translate([source for source, _ in test]), test, strict=True):
        left = Counter(output.split())
        for word in target.split():
            found[word in known][0] += left[word] > 0
            found[word in known][1] += 1
            left[word] -= 1
    seen, unseen = (right / max(1, total) for right, total in (found[True], found[False]))
    return {"seen": seen, "unseen": unseen, "tokens": sum(lengths) / len(lengths), "share": found[False][1] / len(test)}


CLAIM = Claim(
    topic="words",
    statement="Words cannot translate what they never saw; characters can, at the price of length; pieces join both.",
    source="Sennrich et al. 2016, Neural Machine Translation of Rare Words with Subword Units; Cherry et al. 2018",
    measured="The share of the words of test translations that the output has, for forms that the training text has and for "
    "those that it has not, after as many updates with as many sentences; and the tokens in a sentence.",
    prediction="Words get no unseen form right. Pieces get at least 20 % of them, and characters too. For seen forms pieces "
    "are within 5 points of words. Characters need at least twice as many tokens as pieces.",
    explanation="A list of whole words is like a stamp set: what has no stamp cannot be printed. Letters print everything, "
    "stamp by stamp, and it takes long. Pieces are stamps of frequent parts, such as stems and endings: new words are put "
    "together from them.",
    formula="one token of words ≈ 2 pieces ≈ 6 characters; attention grows with the square of the length",
    changes="Much more text leaves few forms unseen. Deeper networks and longer training help characters most (Cherry et "
    "al. 2018). Endings here are regular, as in Finnish rather than in English.",
    revised="In a pilot hardly a form of the test was unseen, so that a fifth of the plurals is kept out of training.",
    variants={
        "words": {"tokenizer.shared": {"kind": "words"}},
        "pieces": {"tokenizer.shared": {"kind": "bpe", "vocab": 300}},
        "characters": {"tokenizer.shared": {"kind": "characters"}},
    },
    sizes={"cpu": {"pairs": 1500, "steps": 1200}, "quick": {"steps": 300}},
    measure=measure,
    units={
        "seen": "right words, forms seen in training",
        "unseen": "right words, unseen forms",
        "tokens": "tokens in a sentence",
        "share": "unseen forms in a sentence",
    },
    parts=(
        Always("words get no unseen form right", "unseen", "words", at_most=0.0),
        Higher("pieces get some", "unseen", "pieces", than=0.0, by=0.2),
        Higher("characters get some", "unseen", "characters", than=0.0, by=0.2),
        Same("for seen forms pieces are as good as words", "seen", "pieces", "words", within=0.05),
        Higher("characters are long", "tokens", "characters", "pieces", times=2),
    ),
    controls=(
        Higher("words are learned", "seen", "words", than=0.0, by=0.5),
        Always("there are unseen forms to test", "share", "words", at_least=0.5),
    ),
    picture=[strip("seen", "unseen", span=(0, 1)), strip("tokens", span=(0,))],
)
