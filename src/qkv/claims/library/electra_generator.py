"""A larger generator hurts ELECTRA (Clark et al. 2020, section 3.2 and figure 3).

Only the generator's width changes. All have as many updates, so that the largest one computes most and has no excuse. The paper's
reason is that too good a generator asks too much of the discriminator. It also replaces fewer words, since a sample that is
right counts as original: the share of replaced words stands beside the accuracy. A discriminator without pretraining shows what
fine-tuning learns by itself.
"""

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import SIMPLE, SIMPLE_ON_GPU, Language, sentence_text
from qkv.claims.pictures import strip
from qkv.claims.probes import verb_accuracy
from qkv.claims.training import GPU_ENCODER, NO_PRETRAINING, SENTENCE_ENCODER, TWO_NETWORKS, train_text
from qkv.claims.verdict import Higher

ELECTRA = {**SENTENCE_ENCODER, **TWO_NETWORKS, "model.embedding_width": 64, "model.generator_layers": 3}
PRETRAINED = ("a quarter", "a half", "as large")


def measure(cell: Cell) -> Measured:
    """Pretrain with a generator of one size; fine-tune the discriminator to tell right from wrong verbs."""
    language = Language(cell.seed, **cell["language"])
    text = sentence_text(language, cell["sentences"], cell.seed)
    run = train_text(cell, "electra-small", ELECTRA, *text, steps=cell["steps"], finish=True)
    scores = run.scores()
    return {
        "tuned": verb_accuracy(cell, run, language),
        "generator": scores["dev_generator_loss"],
        "replaced": scores["dev_replaced"],
    }


CLAIM = Claim(
    topic="pretraining",
    statement="A larger generator hurts ELECTRA.",
    source="Clark et al. 2020, ELECTRA, section 3.2 and figure 3 (left)",
    measured="The accuracy in telling right from wrong verbs (chance 50 %) after fine-tuning discriminators that were trained "
    "for as many updates beside generators of different width.",
    prediction="With a generator as wide as the discriminator at least 1 point worse than with one of a quarter of its width.",
    explanation="Whoever learns to find mistakes needs mistakes of the right kind: a careless pupil makes some that teach. One "
    "who writes like the teacher makes hardly any, and those cannot be seen.",
    formula="x̂ₜ ~ p_G(· | masked x);   D learns p(x̂ₜ ≠ xₜ), which is ½ at best where p_G is the language itself",
    changes="The paper trains for long. In a short training a larger generator learns sooner what mistakes are worth finding.",
    revised="After figures in which controls could not fail, they ask for 2 points more than a discriminator without "
    "pretraining. After a run with one fine-tuning a cell there are five. Sizes of effects stayed.",
    variants={
        "a quarter": {"model.generator_size": 0.25},
        "a half": {"model.generator_size": 0.5},
        "as large": {"model.generator_size": 1.0},
        "no pretraining": {"model.generator_size": 0.25, **NO_PRETRAINING},
    },
    sizes={
        "cpu": {
            "language": SIMPLE, "sentences": 20000, "steps": 900,
            "examples": 200, "tuning": 100, "tunings": 5, "tuning_rate": 0.002,
        },
        "quick": {"sentences": 10000, "steps": 400, "examples": 500, "tunings": 1},
        "gpu": {
            **GPU_ENCODER, "model.embedding_width": 128,
            "language": SIMPLE_ON_GPU, "sentences": 100000,
            "steps": 3000, "examples": 200, "tuning": 200, "tunings": 5, "tuning_rate": 0.001,
        },
    },
    measure=measure,
    units={
        "tuned": "right and wrong verbs told apart",
        "generator": "loss of the generator, nats a masked word",
        "replaced": "share of words that were replaced",
    },
    parts=(Higher("a generator as large is worse", "tuned", "a quarter", "as large", by=0.01),),
    controls=(
        Higher("pretraining helps", "tuned", "a quarter", "no pretraining", by=0.02),
        Higher("a larger generator is better at its own task", "generator", "a quarter", "as large", by=0.02),
    ),
    picture=[
        strip("tuned", marks={"chance": 0.5}, span=(0.5, 1)),
        strip("generator", variants=PRETRAINED),
        strip("replaced", variants=PRETRAINED, span=(0,)),
    ],
)  # fmt: skip
