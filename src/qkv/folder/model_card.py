"""A model card: README.md with what a run's folder records of its model, with the front matter of Hugging Face's cards."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import yaml

from qkv.base.errors import ConfigError
from qkv.base.files import atomic_file
from qkv.folder.run import config_value, find_weights, read_recipe
from qkv.folder.summary import read_result, summarise_run
from qkv.recipes.abilities import NAMES, loads_as, verbs
from qkv.text.translation_metrics import METRICS
from qkv.training.log import read_metrics

CARD = "README.md"
LANGUAGE = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})*")  # codes such as en and zh-Hans; other names of sides are no languages
PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "answering": "question-answering",
}
USAGE = """## Use

```python
import qkv

model = qkv.load("{name}")  # this folder
```

On the command line: {verbs}.
"""


class CardOptions(NamedTuple):
    """What a card says that the run's folder does not know."""

    license: str | None = None
    library: str = "qkv"  # that loads the folder of the card
    usage: str | None = None  # Markdown; by default how qkv uses the run
    fills: bool = True  # whether the model of this folder predicts words at [MASK], if the run's does


def write_card(run: Path, out: Path | None = None, license_name: str | None = None) -> Path:
    """Write the card of a run into its folder, or to another new file."""
    path = out or run / CARD
    if path.exists():
        raise ConfigError(f"{path} exists already; choose another --out, or delete it")
    text = model_card(run, CardOptions(license=license_name))
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8")
    return path


def model_card(run: Path, options: CardOptions | None = None) -> str:
    """Return the card of a run: only what its folder records, and what follows from it."""
    options = options or CardOptions()
    recipe: Any = read_recipe(run)
    weights = find_weights(run, recipe)
    result = {} if weights.step else read_result(run)
    name = run.resolve().name
    usage = options.usage or USAGE.format(name=name, verbs=", ".join(f"`qkv {verb}`" for verb in verbs(recipe)))
    role = NAMES[loads_as(recipe)].partition(" ")[2].capitalize()
    sides = getattr(recipe.data, "languages", None)
    languages = f" from {' to '.join(sides)}" if sides else ""
    lines = [summarise_run(run).sentence(role + languages)]
    trained_here = bool(result or weights.step)  # the recipe of an imported run says nothing of its training
    if weights.step:
        lines.append(f"The run was still in training: these are the weights of {weights.step}.")
    elif not trained_here:
        lines.append("Its folder records no training: it was imported, or made of other runs.")
    sections = {
        "Model": _table(_model_facts(run, recipe, result)),
        "Training data": _table(_data_facts(recipe, result)) if trained_here else "",
        "Training": _table(_training_facts(recipe, result)) if trained_here else "",
        "Scores": _scores(run, recipe, result),
        "Warnings": "\n".join(f"- {warning}" for warning in result.get("warnings", [])),
        "Limits": "\n".join(f"- {limit}" for limit in _limits(recipe, result, trained_here)),
    }
    body = "".join(f"## {heading}\n\n{text}\n\n" for heading, text in sections.items() if text)
    front = yaml.safe_dump(_front_matter(name, recipe, result, options), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n# {name}\n\n" + "\n\n".join(lines) + f"\n\n{body}{usage}"


def _front_matter(name: str, recipe: Any, result: Mapping[str, Any], options: CardOptions) -> dict[str, Any]:
    """Return the metadata that huggingface.co reads; keys without a value are left out."""
    codes = [code for code in getattr(recipe.data, "languages", None) or () if LANGUAGE.fullmatch(code)]
    pipeline = _pipeline(recipe, options.fills)
    split, files = _scored_files(recipe, result)
    metrics = [
        {"type": metric, "value": value, "name": METRICS[metric].label if metric in METRICS else metric.replace("_", " ")}
        for metric, value, _, _ in _score_rows(result)
    ]
    found = {
        "language": codes,
        "license": options.license,
        "library_name": options.library,
        "pipeline_tag": pipeline,
        "tags": list(dict.fromkeys(["qkv", recipe.model.kind, recipe.objective.kind])),
    }
    if metrics:
        dataset = {"name": ", ".join(files) or split, "type": split}
        task = {"type": pipeline or recipe.objective.kind}
        found["model-index"] = [{"name": name, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]
    return {key: value for key, value in found.items() if value}


def _pipeline(recipe: Any, fills: bool) -> str | None:
    """Return Hugging Face's name of what a model does."""
    if recipe.job == "finetuning":
        return PIPELINES.get(recipe.objective.kind)
    encoder = "fill-mask" if fills and "fill" in verbs(recipe) else "feature-extraction"
    return {"translator": "translation", "generator": "text-generation", "encoder": encoder}.get(loads_as(recipe))


def _model_facts(run: Path, recipe: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    shape = {key: value for key, value in recipe.model.model_dump(mode="json").items() if isinstance(value, str | int | float)}
    sizes = config_value(run, "vocabularies") or []
    vocabulary = " and ".join(f"{size:,}" for size in dict.fromkeys(sizes))
    return {"architecture": shape.pop("kind"), "parameters": result.get("parameters"), "vocabulary": vocabulary, **shape}


def _files(recipe: Any, split: str) -> list[str]:
    """Return the names of a split's files, without their folders, which say nothing to others."""
    given = getattr(recipe.data, "text" if split == "train" and recipe.job == "pretraining" else split, ())
    named = (one if isinstance(one, str) else one.name for one in given)
    return [PurePath(part).name for name in named for part in name.split(", ")]


def _scored_files(recipe: Any, result: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the split that the scores are of, and its files."""
    split = str(result.get("scored on", "")).partition(",")[0]
    return split, _files(recipe, split if split in ("dev", "test") else "dev")


def _data_facts(recipe: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"languages": " to ".join(getattr(recipe.data, "languages", None) or ())}
    counts = {**result.get("data", {})}
    corpora = counts.pop("corpora", [])
    for split in dict.fromkeys(["train", "dev", "test", *counts]):
        numbers = ", ".join(f"{count:,} {what}" for what, count in counts.get(split, {}).items())
        facts[split] = ": ".join(filter(None, [", ".join(_files(recipe, split)), numbers]))
    dropped = sum(corpus["dropped"] for corpus in corpora)
    if dropped:
        facts["dropped by checks"] = f"{dropped:,} pairs"
    if not counts and result.get("trained on"):
        facts["trained on"] = result["trained on"]
    return facts


def _training_facts(recipe: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    done = result.get("training", {})
    tokens = done.get("tokens")
    return {
        "objective": recipe.objective.kind,
        "start": PurePath(recipe.start).name if recipe.start else None,
        "updates": result.get("steps"),
        "tokens": f"{tokens:,}" if tokens else None,
        **{key: result.get(key) for key in ("training time", "device", "precision", "weights", "date")},
        "processes": done.get("processes"),
        "seed": recipe.seed,
        "versions": ", ".join(f"{name} {done[name]}" for name in ("qkv", "torch", "python") if name in done),
    }


def _score_rows(result: Mapping[str, Any]) -> list[tuple[str, float, str, str]]:
    """Return metric, value, confidence interval and signature of each score."""
    scores = result.get("scores", [])
    if isinstance(scores, dict):
        return [(name.removeprefix("dev_"), value, "", "") for name, value in scores.items()]
    return [
        (
            score["name"],
            score["value"],
            f"{score['low']:.2f} to {score['high']:.2f}" if score.get("low") is not None else "",
            score.get("signature", ""),
        )
        for score in scores
    ]


def _scores(run: Path, recipe: Any, result: Mapping[str, Any]) -> str:
    """Return a table of the scores, and the last validation."""
    parts, rows = [], _score_rows(result)
    if rows:
        table = ["| metric | value | 95 % interval | signature |", "|---|---:|---|---|"]
        for name, value, interval, signature in rows:
            label = METRICS[name].label if name in METRICS else name.replace("_", " ")
            shown = "`" + signature.replace("|", "\\|") + "`" if signature else ""
            table.append(f"| {label} | {value:.4g} | {interval} | {shown} |")
        files = ", ".join(_scored_files(recipe, result)[1])
        parts += [f"On {result['scored on']}{f' ({files})' if files else ''}:", "\n".join(table)]
    sets = [row for row in result.get("held-out sets", []) if row["held-out set"] not in ("dev", "test")]
    parts += (
        ["\n".join(f"- {row['held-out set']}: {METRICS[row['metric']].label} {row['value']:.2f}" for row in sets)] if sets else []
    )
    validations = [line for line in read_metrics(run) if "dev_loss" in line]
    if validations:
        figures = ", ".join(
            f"{key.removeprefix('dev_').replace('_', ' ')} {value:.4g}"
            for key, value in validations[-1].items()
            if key.startswith("dev_") and isinstance(value, int | float)
        )
        parts.append(f"On dev, at step {validations[-1]['step']:,}: {figures}.")
    return "\n\n".join(parts)


def _limits(recipe: Any, result: Mapping[str, Any], trained_here: bool) -> list[str]:
    """Return limits that follow from the recipe and the records."""
    limits = []
    longest = getattr(recipe.data, "max_tokens", None) or getattr(recipe.data, "length", None)
    if longest and trained_here:
        limits.append(f"It was trained on texts, or passages, of up to {longest:,} tokens.")
    if _score_rows(result):
        limits.append("The scores hold for text like that of the files above; nothing else was measured.")
    else:
        limits.append("No scores on held-out text are recorded.")
    tokenizers = recipe.tokenizer.model_dump() if recipe.tokenizer is not None else {}
    if any(side.get("lowercase") for side in [tokenizers, *tokenizers.values()] if isinstance(side, dict)):
        limits.append("Its tokenizer reads or writes lower case only.")
    return limits


def _table(facts: Mapping[str, Any]) -> str:
    rows = [f"| {name.replace('_', ' ')} | {value} |" for name, value in facts.items() if value not in (None, "", [])]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else ""
