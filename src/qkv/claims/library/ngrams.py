"""Character n-grams help rare and unseen words (Bojanowski et al. 2017, Enriching Word Vectors with Subword Information).

Skip-gram with and without n-grams, with the same settings. The forms of a word share their stem: plural and adjective of a noun,
two numbers of a verb. The rival explanation is that n-grams help in another way than by spelling, for example as more weights.
So a variant gives every form a random spelling, and nothing else changes.
"""

from qkv.base.seeds import rng_at
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import PLURAL, Language
from qkv.claims.pictures import strip
from qkv.claims.probes import nearest_alike, train_words, word_classes, word_counts
from qkv.claims.verdict import Higher, Lower, Same

RARE, UNSEEN = (1, 3), 200  # occurrences; plurals that are kept out of the text
CHANCE = 0.1  # ten topics


def measure(cell: Cell) -> Measured:
    """Train without the sentences of some plurals; return the share of neighbours of the same topic for rare and unseen words."""
    language = Language(cell.seed, nouns=120)
    topics = {word: topic for word, (_, topic) in word_classes(language).items()}
    plurals = [word for word in topics if word.endswith(PLURAL) and word.removesuffix(PLURAL) in topics]
    unseen = {plurals[i] for i in rng_at(cell.seed, "unseen").permutation(len(plurals))[:UNSEEN]}
    documents = [
        [sentence.words for sentence in document if not unseen & {*sentence.words}]
        for document in language.documents(cell["documents"], cell.seed)
    ]
    if cell["random spelling"]:
        new = iter(dict.fromkeys(Language(1000 + cell.seed, nouns=400).nouns))  # other stems, in random order
        seen = dict.fromkeys(word for document in documents for words in document for word in words)
        spelled = {word: next(new) for word in [*topics, *(word for word in seen if word not in topics)]}
        documents = [[[spelled[word] for word in words] for words in document] for document in documents]
        topics, unseen = {spelled[word]: topic for word, topic in topics.items()}, {spelled[word] for word in unseen}
    same = {"window": 5, "epochs": cell["epochs"], "min_count": 1, "sample": 1e-3, "learning_rate": 0.05}
    more = {"buckets": 50_000} if cell["method"] == "fasttext" else {}
    lines = [[" ".join(words) for words in document] for document in documents if document]
    vectors = train_words(cell, cell["method"], lines, **same, **more).vectors
    counts = word_counts(vectors)
    rare = [word for word, count in counts.items() if word in topics and RARE[0] <= count <= RARE[1]]
    asked = sorted(word for word in unseen if word in vectors)  # without n-grams there is no vector to ask
    return {"rare": nearest_alike(vectors, rare, topics), "unseen": nearest_alike(vectors, asked, topics) if asked else CHANCE}


CLAIM = Claim(
    topic="words",
    statement="Character n-grams help rare and unseen words.",
    source="Bojanowski et al. 2017, Enriching Word Vectors with Subword Information, sections 5.1 and 5.2",
    measured="The share of the ten words nearest to a word that have its topic (chance 10 %): for words that occur once to "
    "three times, and for 200 plurals that the text never has. A word without a vector counts as chance.",
    prediction="With n-grams at least 5 points more for rare words, and at least 40 points above chance for unseen ones. "
    "With random spelling unseen words are within 5 points of chance, and rare ones have at least 5 points less than with "
    "their own.",
    explanation="Who knows cat also understands cats. A computer that takes words as wholes does not: each form begins from "
    "nothing. With pieces of the spelling it sees that both begin with cat, and shares what it knows. If spelling were random, "
    "this would help nobody.",
    formula="v(w) = mean of the vectors of w and of its n-grams of 3 to 6 characters, such as <ca, cat, ats, ts>",
    changes="Languages with many forms of each word gain more, as this one; frequent words gain nothing. Chinese characters "
    "are not letters.",
    revised="In a pilot words of 5 to 15 occurrences left no room to be better, so that rarer ones are asked for.",
    variants={
        "words": {"method": "skipgram", "random spelling": False},
        "n-grams": {"method": "fasttext", "random spelling": False},
        "n-grams, random spelling": {"method": "fasttext", "random spelling": True},
    },
    sizes={"cpu": {"documents": 4000, "epochs": 8}, "quick": {"documents": 2000, "epochs": 4}},
    measure=measure,
    units={"rare": "neighbours of the same topic, rare words", "unseen": "neighbours of the same topic, unseen words"},
    parts=(
        Higher("rare words gain", "rare", "n-grams", "words", by=0.05),
        Higher("unseen words get useful vectors", "unseen", "n-grams", than=CHANCE, by=0.4),
        Higher("spelling is the reason, for rare words", "rare", "n-grams", "n-grams, random spelling", by=0.05),
    ),
    controls=(
        Lower("rare words leave room to be better", "rare", "words", than=1.0, by=0.1),
        Same("with random spelling unseen words are guessed", "unseen", "n-grams, random spelling", than=CHANCE, within=0.05),
        Higher("without n-grams rare words are learned a little", "rare", "words", than=CHANCE, by=0.05),
    ),
    picture=[strip("rare", "unseen", marks={"chance": CHANCE}, span=(0, 1))],
)
