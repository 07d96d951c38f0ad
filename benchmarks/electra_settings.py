"""Try settings of ELECTRA beside a BERT of the same shape: pretrain all at once on one device, then fine-tune on two tasks.

    python benchmarks/electra_settings.py all --text wiki.txt.xz --glue GLUE --tokenizer tokenizer.json --seconds 240 --out FOLDER

writes FOLDER/table.md. All selected variants (`--variant`, repeatable) share the device at the same time, so that each has the
same part of it; `--jobs` limits the fine-tunings that run in parallel. Finished runs are skipped; `pretrain`, `finetune` and
`report` are the parts of `all`. The generator's loss is over [MASK] alone; the cosine is
that of the last hidden states of two tokens at random: 1 means that the network has collapsed.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pretrained_models as models
import torch
from comparison import run_parallel, subcommand
from pretrained_models import BERT, ELECTRA, TASKS, Variant
from pretrained_models_report import pretrained, scores
from torch import nn

from qkv.folder.run import RESULT
from qkv.parts.attention import SelfAttention
from qkv.parts.encoder import TransformerStack, initial_deviation, initialise

KEEP = {"kind": "replaced", "mask": 0.85, "keep": 0.15}
WEIGHT_5 = {**KEEP, "discriminator_weight": 5.0}
GENTLE = {"learning_rate": 3e-4, "warmup": 0.3}
# Marks of variants that draw their initial weights otherwise than qkv does (parts/encoder.py); see `INITIAL`.
ALL_002, BY_WIDTH, ONLY_QK = "weights of 0.02", "weights by width", "queries and keys by width"

VARIANTS: dict[str, Variant] = {
    "BERT": Variant(BERT, {"kind": "masked"}),
    f"ELECTRA before, {ALL_002}": Variant(ELECTRA, KEEP, {"learning_rate": 5e-4, "warmup": 0.05}),
    f"ELECTRA, 5, {ALL_002}": Variant(ELECTRA, WEIGHT_5, GENTLE),
    "ELECTRA, 5": Variant(ELECTRA, WEIGHT_5, GENTLE),
    "ELECTRA, growing to 50": Variant(ELECTRA, {**KEEP, "discriminator_warmup": 1.0}, GENTLE),
    "ELECTRA, 5, generator 0.5": Variant({**ELECTRA, "generator_size": 0.5}, WEIGHT_5, GENTLE),
    f"ELECTRA as in the paper, {ALL_002}": Variant(ELECTRA, KEEP, {"learning_rate": 5e-4, "warmup": 10_000}),
    # Below: not in the default selection.
    f"BERT, {ALL_002}": Variant(BERT, {"kind": "masked"}),
    f"BERT, {ONLY_QK}": Variant(BERT, {"kind": "masked"}),
    f"ELECTRA, 5, {BY_WIDTH}": Variant(ELECTRA, WEIGHT_5, GENTLE),
    f"ELECTRA, 5, {ONLY_QK}": Variant(ELECTRA, WEIGHT_5, GENTLE),
    "ELECTRA, 5, rate 5e-4": Variant(ELECTRA, WEIGHT_5, {"learning_rate": 5e-4, "warmup": 0.3}),
    "ELECTRA, 5, rate 1e-3": Variant(ELECTRA, WEIGHT_5, {"learning_rate": 1e-3, "warmup": 0.3}),
    "ELECTRA, 5, generator alone at first": Variant(ELECTRA, {**WEIGHT_5, "generator_alone": 0.2}, GENTLE),
    "ELECTRA, 5, nothing kept": Variant(ELECTRA, {"kind": "replaced", "discriminator_weight": 5.0}, GENTLE),
    "ELECTRA, 50": Variant(ELECTRA, KEEP, GENTLE),
    # Clipping shrinks the generator's gradients, which a weight of 50 makes a small part of the norm, below Adam's epsilon.
    "ELECTRA, 50, epsilon 1e-9": Variant(ELECTRA, KEEP, {**GENTLE, "epsilon": 1e-9}),
    "ELECTRA as in the paper": Variant(ELECTRA, KEEP, {"learning_rate": 5e-4, "warmup": 10_000}),
}
DEFAULT = list(VARIANTS)[:7]
models.VARIANTS = VARIANTS
STATES = "states.json"  # in a run's folder
READY = "ready"  # a folder with a file for each variant that is ready to train
ROWS = 64  # rows of held-out text whose hidden states are compared


def pretrain(options: argparse.Namespace, variant: str) -> None:
    """Pretrain a variant and measure its hidden states."""
    import qkv.models.bert
    import qkv.parts.heads

    draw = next((draw for mark, draw in INITIAL.items() if variant.endswith(mark)), initialise)
    qkv.models.bert.initialise = qkv.parts.heads.initialise = draw
    run = models.folder_of(options.out, variant)
    models.pretrain(options, variant, lambda: wait_for_others(options, run.name))
    (run / STATES).write_text(json.dumps({"cosine": mean_cosine(run)}))


def wait_for_others(options: argparse.Namespace, name: str) -> None:
    """Wait until all variants have compiled their kernels, so that all share the device from the beginning to the end."""
    folder = options.out / READY
    (folder / name).touch()
    while len(list(folder.iterdir())) < options.together:
        time.sleep(0.2)


def draw_all(module: nn.Module, deviation: float) -> None:
    """Draw all weights with one deviation, as BERT's code does."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


INITIAL: dict[str, Callable[[nn.Module, int], None]] = {
    ALL_002: lambda module, width: draw_all(module, 0.02),
    ONLY_QK: lambda module, width: draw_queries_keys(module),
    BY_WIDTH: lambda module, width: draw_all(module, initial_deviation(width)),
}


@torch.no_grad()
def draw_queries_keys(module: nn.Module) -> None:
    """Draw weights with 0.02 except for the projections of queries, keys and embeddings."""
    draw_all(module, 0.02)
    for part in module.modules():
        if isinstance(part, SelfAttention):
            part.qkv.weight[: 2 * part.out.in_features].mul_(part.qkv.in_features**-0.5 / 0.02)
        if isinstance(part, TransformerStack) and isinstance(part.projection, nn.Linear):
            part.projection.weight.mul_(part.projection.in_features**-0.5 / 0.02)


@torch.no_grad()
def mean_cosine(run: Path) -> float:
    """Return the mean cosine of the last hidden states of two different tokens of held-out text."""
    from qkv.base.hardware import choose_device
    from qkv.data.held_out import hold_out
    from qkv.folder.networks import read_network_run
    from qkv.jobs.pretraining import batch_settings, tokenise_files
    from qkv.objectives import OBJECTIVES
    from qkv.text.documents import find_document_files

    trained = read_network_run(run)
    recipe: Any = trained.recipe
    documents, _ = tokenise_files(recipe, find_document_files(recipe.data.text), trained.tokenizer)
    objective = OBJECTIVES[recipe.objective.kind].build(recipe.objective, trained.tokenizer)
    source = objective.batches(documents, hold_out(documents, recipe.data.held_out), batch_settings(recipe, trained.tokenizer))
    device = choose_device(recipe.training.device)
    batch = next(iter(source.in_order())).part(slice(0, ROWS)).to(device)
    passages = batch.inputs[0]
    hidden = trained.model().to(device).eval().encoder(passages.rows)[passages.text > 0].float()
    unit = nn.functional.normalize(hidden, dim=-1)
    return float((unit.sum(0).square().sum() - len(unit)) / (len(unit) * (len(unit) - 1)))


def pretrain_all(options: argparse.Namespace) -> None:
    """Pretrain all variants at the same time; the text is tokenised once before."""
    models.tokenise(options, options.variant[0])
    wanted = [name for name in options.variant if not (models.folder_of(options.out, name) / RESULT).exists()]
    shutil.rmtree(options.out / READY, ignore_errors=True)
    (options.out / READY).mkdir()
    commands = [subcommand(__file__, options, "pretrain-one", [name], together=len(wanted)) for name in wanted]
    run_parallel(commands, len(wanted))


def finetune_all(options: argparse.Namespace) -> None:
    """Fine-tune all variants on all tasks in parallel."""
    pairs = [(name, task) for task in options.task for name in options.variant]
    run_parallel([subcommand(__file__, options, "finetune-one", [name], task=[task]) for name, task in pairs], options.jobs)


def report(options: argparse.Namespace) -> None:
    """Write and print the table of the runs that exist."""
    titles = ["variant", "updates", "tokens", "generator loss", "recall replaced", "recall original", "cosine", *options.task]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for variant in options.variant:
        run = models.folder_of(options.out, variant)
        if not (run / RESULT).exists():
            continue
        found = json.loads((run / RESULT).read_text())["scores"]
        loss = found.get("dev_generator_loss", found.get("dev_masked_loss"))
        figures = [loss, found.get("dev_recall_replaced"), found.get("dev_recall_original")]
        figures.append(json.loads((run / STATES).read_text())["cosine"] if (run / STATES).exists() else None)
        cells = ["" if value is None else f"{value:.3f}" for value in figures]
        reached = [scores(run, task, TASKS[task][2], options.seeds) for task in options.task]
        cells += [" ".join(f"{score:.1f}" for score in task) for task in reached]
        lines.append(f"| {variant} | {pretrained(run)} | " + " | ".join(cells) + " |")
    (options.out / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)


def everything(options: argparse.Namespace) -> None:
    """Pretrain, report, fine-tune, report."""
    pretrain_all(options)
    report(options)
    finetune_all(options)
    report(options)


def main() -> None:
    whole = {"all": everything, "pretrain": pretrain_all, "finetune": finetune_all, "report": report}
    each = {"pretrain-one": pretrain, "finetune-one": models.finetune}
    parser = models.parser(__doc__, [*whole, *each], list(VARIANTS))
    parser.add_argument("--together", type=int, default=1, help="variants that wait for each other before they train")
    parser.set_defaults(task=["SST-2", "STS-B"], seeds=1, jobs=14)
    options = parser.parse_args()
    options.variant = options.variant or DEFAULT
    options.out.mkdir(parents=True, exist_ok=True)
    if options.action in whole:
        whole[options.action](options)
        return
    for variant in options.variant:
        each[options.action](options, variant)


if __name__ == "__main__":
    main()
