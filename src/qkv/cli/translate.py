"""qkv translate RUN [FILE...]: lines in, lines out, in the same order; or whole files."""

import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from qkv.base.errors import ConfigError, QkvError
from qkv.cli.lines import input_lines
from qkv.cli.options import Decoding, Device
from qkv.cli.translate_documents import is_for_files, refuse_with_files, translate_documents
from qkv.text.pair import as_side_names
from qkv.text.translatable import FORMATS, ReadOptions

if TYPE_CHECKING:
    from qkv.inference.translator import TranslatedText, Translator
    from qkv.text.glossary import Term

CHUNK = 512  # lines translated at once
NO_LINE_YET = object()  # no line arrived for a moment


def translate_command(
    run: Annotated[Path, typer.Argument(help="Folder of a translator's run, or one that `qkv export` wrote.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text file, one text per line (standard input by default, or -); or files of other formats, folders, patterns.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="New file, or for several files a folder, for whole translated files.")] = None,
    all_segments: Annotated[bool, typer.Option("--all", help="Translate again what has a translation in its file.")] = False,
    file_format: Annotated[
        str | None, typer.Option("--format", help=f"Format of files whose suffix does not tell: {', '.join(FORMATS)}.")
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")] = None,
    n_best: Annotated[int, typer.Option(help="Translations printed per line, best first.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Higher prefers longer translations.")] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Print the probability that a translation is good before it; of a run without a calibration the score.",
        ),
    ] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Print word alignments after each translation.")] = False,
    prefix: Annotated[str | None, typer.Option(help="Text that every translation must begin with.")] = None,
    words: Annotated[Path | None, typer.Option(help="File of words; translations use no others.")] = None,
    sampling: Annotated[bool, typer.Option("--sample", help="Sample instead of searching for the best.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 sharpens, above 1 flattens.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample: the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: the tokens that hold this probability.")] = None,
    split: Annotated[
        str | None, typer.Option(help="sentences or never: whether lines are cut at sentence ends; by default as in training.")
    ] = None,
    protect: Annotated[
        list[str] | None, typer.Option(help="Regular expression of spans to carry over unchanged, beside placeholders and tags.")
    ] = None,
    no_protect: Annotated[
        bool, typer.Option("--no-protect", help="Translate placeholders, tags and lines without letters like other text.")
    ] = False,
    glossary: Annotated[
        Path | None, typer.Option(help="File of terms and their translations, separated by a tab, which translations keep to.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="With --glossary: find its terms in any case.")] = False,
    soft: Annotated[
        bool, typer.Option("--soft", help="With --glossary: put its translations into the source, for a run that learned it.")
    ] = False,
    settings: Decoding = None,
    device: Device = "auto",
    engine: Annotated[
        str | None, typer.Option(help="own, ctranslate2 (fast on a CPU) or onnx; the first use converts the run.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
    adapter: Annotated[Path | None, typer.Option(help="Folder of an adapter that was trained for this run.")] = None,
) -> None:
    """Translate text line by line, where an empty line stays empty; or whole files, with everything but their texts kept."""
    from qkv.base.config import with_settings
    from qkv.inference.file_translation import plan_files
    from qkv.inference.load import load_translator, read_languages
    from qkv.inference.segmenter import TextOptions
    from qkv.inference.translator import TranslatedText
    from qkv.text.glossary import Glossary
    from qkv.text.treebank import TextWithHeads

    if protect and no_protect:
        raise ConfigError("--protect and --no-protect exclude each other; leave one out")
    if ignore_case and glossary is None:
        raise ConfigError("--ignore-case is for the terms of a glossary; give --glossary too")
    if soft and glossary is None:
        raise ConfigError("--soft is a way to use a glossary; give --glossary too")
    terms = None if glossary is None else Glossary.read(glossary, ignore_case)
    given_texts: dict[str, Any] = {
        "split": split, "protect": None if no_protect else tuple(protect or ()), "glossary": terms, "soft": soft
    }  # fmt: skip
    text_options, _ = TextOptions.take_from(given_texts)  # refuses a wrong option before the run is loaded
    whole_files = bool(files) and is_for_files(files or [], out, file_format)
    given = {"beam": beam, "n_best": n_best, "length_penalty": length_penalty, "sampling": sampling or None,
             "temperature": temperature, "top_k": top_k, "top_p": top_p}  # fmt: skip
    options = with_settings({name: value for name, value in given.items() if value is not None}, settings or [])
    languages = as_side_names("languages", options.pop("languages", None))  # accepted for lines too
    plan = None
    if whole_files:
        refuse_with_files(
            {"--n-best": n_best > 1, "--scores": scores, "--alignments": alignments, "--prefix": prefix is not None}
        )
        read = ReadOptions(languages or read_languages(run), as_side_names("columns", options.pop("columns", None)))
        command = (run.resolve(), adapter and adapter.resolve(), engine, precision, words, options, text_options.fingerprint)
        plan = plan_files(files or [], out, all_segments, file_format, read, repr(command))
    elif out is not None or all_segments:
        raise ConfigError("--out and --all are for files; name a file")
    lines = input_lines(files[0] if files else None)
    translator = load_translator(run, device, engine, precision, adapter)
    if not sampling and "beam" not in options:
        options["beam"] = max(n_best, translator.recipe.decoding.beam)
    confidence = scores and _has_confidence(translator)
    config = translator.decoding(**options)  # refuses a wrong option before the first line is read
    translator.check_glossary(text_options, config)
    vocabulary = [word for line in input_lines(words) for word in line.split()] if words is not None else None
    translate: Callable[..., list[list[TranslatedText]]] = partial(translator.n_best, words=vocabulary, **given_texts, **options)
    counts, exit_code = TermCounts(), 0
    if plan is not None:
        exit_code = translate_documents(plan, lambda texts: counts.best_of(translate(texts)), text_options.protect)
    else:
        written = partial(_format_output, translator=translator, scores=scores, confidence=confidence, alignments=alignments)
        with _progress_bar() as progress:
            task, done = progress.add_task("translating", total=None), 0
            for chunk in _chunks(lines):
                if translator.trees:
                    chunk = [TextWithHeads.from_line(line, f"line {done + number}") for number, line in enumerate(chunk, 1)]
                prefixes = None if prefix is None else [prefix] * len(chunk)
                found = translate(chunk, prefixes=prefixes, first=done, confidence=confidence)
                for outputs in found:
                    # Always n_best lines per input line, even where there are fewer translations, so that lines can be matched.
                    for output in [*outputs, *[TranslatedText("", 0.0)] * (config.n_best - len(outputs))]:
                        print(written(output))
                counts.best_of(found)
                sys.stdout.flush()
                done += len(chunk)
                progress.update(task, completed=done)
    if terms is not None:
        counts.report()
    raise typer.Exit(exit_code)


class TermCounts:
    """Counts the terms of a glossary in the text, and those that are not translated as it says."""

    def __init__(self) -> None:
        self.occurrences: Counter[Term] = Counter()
        self.missing: Counter[Term] = Counter()

    def best_of(self, found: "list[list[TranslatedText]]") -> list[str]:
        """Count the terms of the best translation of each text, and return these translations."""
        for best, *_ in found:
            self.occurrences.update(best.terms)
            self.missing.update(best.missing_terms)
        return [best.text for best, *_ in found]

    def report(self) -> None:
        """Print how many terms were found and translated as the glossary says, and each that was not."""
        total, lost = self.occurrences.total(), self.missing.total()
        print(f"qkv: terms of the glossary: {total:,} in the text, {total - lost:,} translated as it says", file=sys.stderr)
        for term, count in self.missing.most_common():
            print(f"qkv: {term}: {self.occurrences[term]:,} in the text, not translated so {count:,} times", file=sys.stderr)


def _has_confidence(translator: "Translator") -> bool:
    """Return whether a run's calibration can be used; if not, say why, and that scores are printed instead."""
    try:
        _ = translator.confidence_model
    except QkvError as error:
        print(f"qkv: --scores prints scores of the search, not probabilities: {error}", file=sys.stderr)
        return False
    return True


def _format_output(output: "TranslatedText", translator: "Translator", scores: bool, confidence: bool, alignments: bool) -> str:
    """Return a translation's line: probability or score, text and alignment, separated by tabs."""
    fields = [output.text]
    if confidence:  # an empty text has none
        fields.insert(0, "" if output.confidence is None else f"{output.confidence:.3f}")
    elif scores:
        fields.insert(0, f"{output.score:.4f}")
    if alignments:
        fields.append(" ".join(f"{source}-{target}" for source, target in translator.alignment(output)))
    return "\t".join(fields)


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield the lines that have arrived, up to CHUNK: a slow writer gets each answer at once, a fast one full batches."""
    ready: queue.Queue[str | Exception | None] = queue.Queue(4 * CHUNK)

    def read() -> None:
        try:
            for line in lines:
                ready.put(line)
            ready.put(None)
        except Exception as error:
            ready.put(error)

    def next_item() -> object:
        try:
            return ready.get(timeout=0.02)
        except queue.Empty:
            return NO_LINE_YET

    threading.Thread(target=read, daemon=True).start()
    item: object = ready.get()
    while isinstance(item, str):
        chunk = [item]
        item = next_item()
        while isinstance(item, str) and len(chunk) < CHUNK:
            chunk.append(item)
            item = next_item()
        yield chunk
        item = ready.get() if item is NO_LINE_YET else item
    if isinstance(item, Exception):
        raise item


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} lines"),
        TimeElapsedColumn(),
    )
    # On a terminal the translations themselves show the progress.
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or sys.stdout.isatty())
