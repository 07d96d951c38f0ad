"""Next-sentence prediction is solved by topic, sentence order is not (Lan et al. 2020, ALBERT, section 3.1).

The rival is a bag of words that is trained on the same pairs as BERT. It sees the words that belong to a topic, is not told to
which, and finds topics by itself. BERT is trained for either task, and then asked about pairs in which topic tells nothing:
passages from two documents of the same topic, or the two passages of one document in the other order. A second bag of all words
shows what else counts tell: the definite determiner marks what was named before, and so gives away the order, without reading.
"""

import numpy as np
import torch

from qkv.base.rows import Rows
from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import Document, Language, texts
from qkv.claims.pictures import strip
from qkv.claims.probes import bag_accuracy, rows_of, tokenizer_of, word_classes
from qkv.claims.training import GPU_ENCODER, SENTENCE_ENCODER, Trained, train_text
from qkv.claims.verdict import Higher, Same

HELD_OUT = 4000  # documents: few would leave chance uncertain by some points


@torch.no_grad()
def same_topic(run: Trained, documents: list[Document], order: bool) -> float:
    """Return BERT's accuracy on pairs of passages of one topic, half of them as in the document."""
    tokenizer, by_topic = tokenizer_of(run), dict[int, list[Document]]()
    for document in documents:
        by_topic.setdefault(document[0].topic, []).append(document)
    pairs, labels = [], []
    for some in by_topic.values():
        for document, other in zip(some, [*some[1:], some[0]], strict=True):
            first, second, wrong = (" ".join(s.text for s in part) for part in (document[:1], document[1:2], other[1:2]))
            pairs += [(first, second), (second, first) if order else (first, wrong)]
            labels += [0, 1]
    device = next(run.model.parameters()).device
    one, two = (rows_of(tokenizer, [pair[side] for pair in pairs]) for side in (0, 1))
    right = []
    for number, label in enumerate(labels):
        parts = one.ids[number][one.text[number] > 0], two.ids[number][two.text[number] > 0][1:]  # the second without bos
        ids = torch.cat(parts)[None]
        rows = Rows(ids, torch.ones_like(ids), torch.arange(ids.size(1))[None])
        segment = torch.cat([torch.full_like(part, i) for i, part in enumerate(parts)])[None]
        hidden = run.model.encoder(Rows(*(x.to(device) for x in rows[:3])), segment.to(device))
        logits = run.model.heads["sentence_task"](run.model.heads["pooler"](hidden[:, 0]))
        right.append(int(logits.argmax()) == label)
    return float(np.mean(right))


def measure(cell: Cell) -> Measured:
    """Train BERT for one task; measure it, and rivals that are trained for it too."""
    language = Language(cell.seed, **cell["language"])
    found = language.documents(cell["documents"] + HELD_OUT, cell.seed, (2, 4))
    settings = {**SENTENCE_ENCODER, "objective.sentence_task": cell["task"]}
    run = train_text(cell, "bert-mini", settings, texts(found[HELD_OUT:]), texts(found[:HELD_OUT]), steps=cell["steps"])
    tokenizer = tokenizer_of(run)
    every, topical = torch.ones(len(tokenizer)), torch.zeros(len(tokenizer))
    every[[tokenizer.bos, tokenizer.eos]] = 0.0  # the first passage alone has a bos
    topical[[token for (token,) in tokenizer.encode_batch([*word_classes(language)])]] = 1.0
    topical[tokenizer.unk] = 0.0
    bert, words = run.scores()["dev_sentence_task_accuracy"], bag_accuracy(run, every, cell["rival_steps"])
    return {
        "bert": bert,
        "topic": bag_accuracy(run, topical, cell["rival_steps"]),
        "words": words,
        "lead": bert - words,
        "same": same_topic(run, found[:200], cell["task"] == "order"),
    }


CLAIM = Claim(
    topic="pretraining",
    statement="Next-sentence prediction is solved by topic, sentence order is not.",
    source="Lan et al. 2020, ALBERT, section 3.1; Yang et al. 2019; Liu et al. 2019",
    measured="The accuracy in telling passages that follow each other from others (chance 50 %): of a trained bag of the "
    "words that belong to a topic, of one of all words, of BERT, and of BERT on pairs of the same topic.",
    prediction="A bag of the words of topics solves next sentence to at least 85 %, and leaves sentence order within 5 points of "
    "chance. BERT learns sentence order to at least 60 %. A BERT trained for next sentence stays within 10 points of chance "
    "where the topics are the same.",
    explanation="Does this page follow that one? If the wrong answers come from other books, it is enough to see that one is "
    "about dogs and the other about ships. If both pages are of the same book and only their order is asked, one must have read "
    "them.",
    formula="next: p(follows | A, B) ≈ [topic(A) = topic(B)];   order: topic(A) = topic(B) always",
    changes="Counts of all words give away the order of sentences by the determiners, so that BERT's accuracy there does not "
    "show that it reads. Longer training may find in next-sentence pairs what else there is: in this language sentences often "
    "begin with what the last one ended with. Documents of many topics weaken the cue.",
    revised="The rival of the first run was told the topic of each word. It is trained now, on BERT's pairs, and knows which "
    "words belong to a topic but not to which; 4,000 documents instead of 400 are held out. That BERT beats a bag of "
    "all words became a further prediction after a review. Sizes of effects stayed.",
    variants={"next sentence": {"task": "next"}, "sentence order": {"task": "order"}},
    sizes={
        "cpu": {
            "language": {"topics": 8, "nouns": 3, "verbs": 2, "adjectives": 2, "roles": 0}, "documents": 8000, "steps": 2500,
            "rival_steps": 1000,
        },
        "quick": {"steps": 800},
        "gpu": {
            **GPU_ENCODER, "language": {"topics": 10, "nouns": 12, "verbs": 6, "adjectives": 4}, "documents": 40000,
            "steps": 5000,
        },
    },
    measure=measure,
    units={
        "bert": "right, BERT",
        "topic": "right, bag of words of topics",
        "words": "right, bag of all words",
        "same": "right, BERT on pairs of one topic",
        "lead": "BERT above the bag of all words",
    },
    parts=(
        Higher("topic solves next sentence", "topic", "next sentence", than=0.5, by=0.35),
        Same("topic does not solve sentence order", "topic", "sentence order", than=0.5, within=0.05),
        Higher("BERT learns sentence order", "bert", "sentence order", than=0.5, by=0.1),
    ),
    further=(
        Same("next sentence teaches little but topic", "same", "next sentence", than=0.5, within=0.1),
        Higher("BERT tells order better than a bag of all words", "lead", "sentence order", than=0.0, by=0.05),
    ),
    controls=(Higher("BERT learns next sentence", "bert", "next sentence", than=0.5, by=0.3),),
    picture=[strip("topic", "words", "bert", "same", marks={"chance": 0.5}, span=(0.4, 1))],
)  # fmt: skip
