"""Training pairs from monolingual text: back-translation, and sequence-level distillation (Kim and Rush 2016).

Back-translation (Sennrich et al. 2016) pairs a real target with a synthetic source: sampled rather than searched, because samples
are more varied (Edunov et al. 2018), and behind a tag, so that the model can tell them from real sources (Caswell et al. 2019).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qkv.base.config import differences
from qkv.base.errors import ConfigError, QkvError
from qkv.data.cache import cached_digest
from qkv.folder.run import MANIFEST, RESULT, discard_run, find_weights, is_exported, is_run, lock_run, open_run, read_recipe
from qkv.folder.start import complete_recipe
from qkv.inference.load import load_translator
from qkv.inference.translator import TranslatedText, Translator
from qkv.jobs.inputs import check_inputs
from qkv.jobs.pairs_file import PairsFile, SyntheticPairsConfig
from qkv.jobs.train import as_settings, resolve_recipe, train
from qkv.recipes import TranslationRecipe, recipe_job
from qkv.text.check import TOO_LONG, CheckConfig, check_pairs
from qkv.text.monolingual import MonolingualText, TextLine
from qkv.text.pair import TextPair, same_language
from qkv.training.progress import Progress

TAG = "<BT>"
CHUNK = 2048  # lines translated at once, in batches of similar length, and then saved
Texts = str | Path | Sequence[str | Path]


def backtranslate(
    run: str | Path,
    texts: Texts,
    out: str | Path,
    *,
    tag: str = TAG,
    min_score: float | None = None,
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
    **decoding: Any,
) -> Path:
    """Translate target-language text by a reverse model, and write pairs (tag and synthetic source, real target) to `out`.

    The same call again goes on after an interruption. `texts` are files with one text per line, patterns, or "-" for standard
    input; `decoding` has keys of a recipe's decoding section: sampling, unless a beam is given. Pairs whose log-probability per
    token is below `min_score` are dropped, and so are empty, overlong and copied ones.

    >>> backtranslate("runs/de-en", "german.txt", "pairs.tsv")
    PosixPath('pairs.tsv')
    """
    if tag != tag.strip() or any(sign in tag for sign in "\t\n\r"):
        raise ConfigError(f"the tag {tag!r} has white space at an end, a tab or a line break; give a word such as {TAG}")
    options = decoding if "beam" in decoding else {"sampling": True, **decoding}
    translator = load_translator(run, device, engine, precision)
    with MonolingualText(_names(texts)) as text:
        made_of = _made_of(translator, options, text, CheckConfig(), tag=tag, min_score=min_score, reverse=True)
        write_pairs(translator, text, PairsFile(Path(out), made_of))
    return Path(out)


def distil(
    teacher: str | Path,
    texts: Texts,
    recipe: str | Path | dict[str, Any],
    out: str | Path,
    *,
    pairs: Any = (),
    settings: Mapping[str, Any] | None = None,
    min_score: float | None = None,
    accept_changes: bool = False,
    device: str = "auto",
    engine: str | None = None,
    precision: str | None = None,
    **decoding: Any,
) -> Path:
    """Train a student in the run folder `out` on a teacher's translations of source-language text, and on real `pairs` if given.

    The teacher's pairs are in `out` with .teacher.tsv behind its name. The same call again goes on after an interruption.
    `recipe` and `settings` are those of `qkv.train`, without data.train; `pairs` are one or several corpora, as in data.train;
    `decoding` changes the teacher's own settings of decoding.

    >>> distil("runs/big", "english.txt", "transformer-small", "runs/student", settings={"data.dev": "dev.tsv"})
    PosixPath('runs/student')
    """
    run = Path(out)
    if not run.name:
        raise ConfigError(f"--out {out}: name a folder for the run")
    made = run.with_name(f"{run.name}.teacher.tsv")
    translator = load_translator(teacher, device, engine, precision)
    real = list(pairs) if isinstance(pairs, list | tuple) else [pairs]
    student = _student_recipe(translator, recipe, {**(settings or {})}, [{"pairs": str(made)}, *real])
    with MonolingualText(_names(texts)) as text:
        made_of = _made_of(translator, decoding, text, student.data.check, min_score=min_score, reverse=False)
        file = PairsFile(made, made_of)
        if not (is_run(run) and (run / RESULT).exists() and not differences(read_recipe(run), student)):
            new = not run.exists()
            with lock_run(run):  # refuses a run of another recipe before the teacher begins
                open_run(run, student, accept_changes)
            try:
                write_pairs(translator, text, file)
            except QkvError:
                if new:
                    discard_run(run)
                raise
    return train(student, run, accept_changes)


def _names(texts: Texts) -> list[str]:
    return [str(text) for text in ([texts] if isinstance(texts, str | Path) else texts)]


def _student_recipe(
    translator: Translator, given: Any, settings: dict[str, Any], corpora: list[Any]
) -> TranslationRecipe[Any, Any]:
    """Return the student's recipe, with all it names checked, but for the teacher's pairs, which are the first of the corpora."""
    if any(setting.startswith(("data.train=", "data.train.")) for setting in as_settings(settings)):
        raise ConfigError("data.train is the teacher's pairs and those of --pairs; leave it out, and give real pairs by --pairs")
    job = recipe_job(given, list(as_settings(settings))) if isinstance(given, str | Path | dict) else getattr(given, "job", "")
    if job not in ("translation", ""):  # before data.train, which other recipes do not have
        name = "the recipe" if isinstance(given, dict) else given
        raise ConfigError(f"{name}: a recipe for {job}; a student is a translator, such as transformer-small")
    settings["data.train"] = corpora
    recipe: Any = resolve_recipe(given, settings)
    languages, taught = recipe.data.languages, translator.recipe.data.languages
    if languages is None and taught is not None:
        recipe = resolve_recipe(given, {**settings, "data.languages": list(taught)})
    elif languages and taught and not all(map(same_language, languages, taught)):
        raise ConfigError(f"data.languages {list(languages)}: the teacher translates {taught[0]} to {taught[1]}; leave it out")
    recipe = complete_recipe(recipe)
    if recipe.model.reads_trees:
        raise ConfigError(
            f"model.positions={recipe.model.positions} needs sources with dependency heads, and plain text has none"
        )
    known = recipe.data.train[1:] or recipe.data.dev  # dev stands in for pairs that are not there yet
    check_inputs(recipe.model_copy(update={"data": recipe.data.model_copy(update={"train": known})}))
    return recipe


def _made_of(
    translator: Translator, options: dict[str, Any], text: MonolingualText, check: CheckConfig, **more: Any
) -> SyntheticPairsConfig:
    """Return all that decides the pairs; refuse options that the translator's engine does not have."""
    folder = translator.folder
    assert folder is not None
    if translator.trees:
        raise ConfigError(f"{folder} reads texts with dependency heads, and plain text has none; give another translator")
    config = translator.decoding(**options)
    translator.n_best([], **options)
    weights = folder / MANIFEST if is_exported(folder) else find_weights(folder, read_recipe(folder)).path
    return SyntheticPairsConfig(
        model=cached_digest(weights),
        engine=type(translator.engine).__name__,
        precision=getattr(translator.engine, "precision", None),
        text=text.digest,
        lines=text.lines,
        decoding=config,
        # Equal pairs are found in training, over all corpora.
        check=check.model_copy(update={"duplicates": "keep"}),
        **{"tag": "", **more},
    )


def write_pairs(translator: Translator, text: MonolingualText, file: PairsFile) -> None:
    """Translate what is left of the text, chunk by chunk, into the file."""
    progress = Progress()
    if file.finished:
        progress.say(f"{file.path} is finished: {file.report.kept:,} pairs; choose another --out to make others")
        return
    if file.lines:
        progress.say(f"going on after {file.lines:,} of {text.lines:,} lines")
    with file.opened() as opened, progress.count("lines", file.lines, log=True) as show:
        try:
            for chunk in text.chunks(CHUNK, file.lines):
                file.add(opened, _pairs_of(translator, chunk, file).encode(), len(chunk))
                show(file.lines, text.lines)
        except KeyboardInterrupt:
            progress.say(f"saved {file.lines:,} of {text.lines:,} lines; run the same command to go on")
            raise
        file.finish()
    progress.say(file.report.table(str(file.path)))


def _pairs_of(translator: Translator, chunk: list[TextLine], file: PairsFile) -> str:
    """Return the lines of the file for a chunk of the text, and count in the report what is kept and dropped."""
    made_of, report = file.made_of, file.report
    task = translator.recipe.data.only_prefix
    problems = [line.problem or (TOO_LONG if len(line.text.strip()) > made_of.check.max_chars else "") for line in chunk]
    texts = ["" if problem else line.text for line, problem in zip(chunk, problems, strict=True)]
    sources = [f"{task} {text}" if task and text.strip() else text for text in texts]
    rows = []
    found = translator.n_best(sources, first=file.lines, **made_of.decoding.model_dump())
    for line, problem, outputs in zip(chunk, problems, found, strict=True):
        seen: set[str] = set()
        for output in outputs:
            if output.text in seen:  # a sample that was drawn twice
                continue
            seen.add(output.text)
            sides = (output.text, line.text) if made_of.reverse else (line.text, output.text)
            score = mean_logprob(output, made_of.decoding.length_penalty)
            unlikely = made_of.min_score is not None and score < made_of.min_score
            reason = problem or (f"score below {made_of.min_score:g}" if unlikely else "")
            for source, target, *_ in check_pairs([TextPair(*sides, line.number, reason, line.file)], made_of.check, report):
                rows.append(f"{made_of.tag} {source}".lstrip() + f"\t{target}\t{score:.4f}\n")
    return "".join(rows)


def mean_logprob(output: TranslatedText, alpha: float) -> float:
    """Return the log-probability of a translation per token, ends included, from its score with the length penalty `alpha`.

    For a text in several parts, which are scored one by one, it is a mean over the parts.
    """
    lengths = [len(target) + 1 for _, target in output.pieces]
    return output.score / sum(length / ((5 + length) / 6) ** alpha for length in lengths) if lengths else 0.0
