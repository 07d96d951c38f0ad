"""Of the tokens to predict, 80 % [MASK], 10 % random and 10 % unchanged is better than all [MASK] (Devlin et al. 2019, C.2).

The reason given: [MASK] never occurs after pretraining, so that a model that only ever answers at [MASK] need not know anything
at real words. The paper's own table says how much that matters: hardly at all with fine-tuning, and more for frozen features.
So both are measured: the senses of ambiguous nouns in the frozen states, and fine-tuning to tell right from wrong verbs.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.language import Language, texts
from qkv.claims.pictures import Picture, stack, strip
from qkv.claims.probes import agreement, senses_told, verb_examples
from qkv.claims.training import ENCODER, train_labels, train_text
from qkv.claims.verdict import Higher, Same

SHAPE = {"topics": 4, "nouns": 12, "verbs": 6, "adjectives": 4, "roles": 1}


def measure(cell: Cell) -> Measured:
    """Pretrain; measure frozen states, masked verbs, and fine-tuning."""
    language = Language(cell.seed, **SHAPE)
    found = texts(language.documents(cell["documents"] + 100, cell.seed))
    mask, random, keep = cell["shares"]
    settings = {**ENCODER, "objective.mask": mask, "objective.random": random, "objective.keep": keep}
    run = train_text(cell, "bert-mini", settings, found[100:], found[:100], steps=cell["steps"], finish=True)
    sentences = language.sentences(2000 + cell["examples"], 1000 + cell.seed)
    test, train = verb_examples(sentences[:1000]), verb_examples(sentences[2000:])
    tuned = train_labels(cell, run, train, test, steps=cell["tuning"])
    return {
        "frozen": senses_told(run, sentences[:2000]),
        "tuned": tuned.scores()["accuracy"],
        "masked": agreement(run, sentences[:1000]),
    }


def picture(result: Result) -> Picture:
    """Draw what frozen states tell, and the accuracy after fine-tuning."""
    return stack(*(strip(result, figure, marks={"chance": 0.5}, span=(0.4, 1)) for figure in ("frozen", "tuned")))


CLAIM = Claim(
    topic="pretraining",
    statement="Masking with 80 % [MASK], 10 % random and 10 % unchanged tokens is better than all [MASK].",
    source="Devlin et al. 2019, BERT, section 3.1 and appendix C.2, table 8",
    measured="How often the frozen states of ambiguous nouns tell their sense, and the accuracy in telling right from wrong "
    "verbs after fine-tuning (chance 50 % for both).",
    prediction="For frozen states at least 2 points better; with fine-tuning within 3 points, as in the paper's table.",
    explanation="A pupil who only ever fills in blanks may stop reading the words that are not blank. So some blanks show "
    "the right word and some a wrong one, and the pupil never knows when to sleep.",
    formula="x̃ₜ = [MASK] (80 %), a random token (10 %), xₜ (10 %) for 15 % of all t",
    changes="The words that are not masked are needed to predict others, so that their states know much in any case. Longer "
    "pretraining may widen or close the gap.",
    variants={"80/10/10": {"shares": [0.8, 0.1, 0.1]}, "all [MASK]": {"shares": [1.0, 0.0, 0.0]}},
    sizes={
        "cpu": {"documents": 3000, "steps": 1200, "examples": 1000, "tuning": 200},
        "quick": {"documents": 1500, "steps": 250, "tuning": 60, "training.batch_tokens": 1024},
    },
    measure=measure,
    units={
        "frozen": "senses told from frozen states",
        "tuned": "accuracy after fine-tuning",
        "masked": "masked verbs in the right number",
    },
    parts=(
        Higher("frozen states are better", "frozen", "80/10/10", "all [MASK]", by=0.02),
        Same("fine-tuning makes both equal", "tuned", "80/10/10", "all [MASK]", within=0.03),
    ),
    controls=(
        Higher("pretraining learns agreement", "masked", "all [MASK]", than=0.5, by=0.1),
        Higher("fine-tuning learns the task", "tuned", "all [MASK]", than=0.5, by=0.1),
    ),
    picture=picture,
)
