"""Plans of files: patterns and folders, nothing overwritten, interruptions, and each text once."""

from pathlib import Path

import pytest

from qkv.base.errors import QkvError
from qkv.inference.file_translation import CHUNK, UNFINISHED, plan_files, translate_plan


def upper(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of texts in two levels, one that is complete, one of no format, one hidden."""
    files = {
        "a.md": "one\n\nsame",
        "in/b.html": "<p>two</p><p>same</p>",
        "c.po": 'msgid "a"\nmsgstr "b"',
        "d.xyz": "x",
        ".e.md": "no",
    }
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "src"


def test_a_folder_keeps_names_and_says_what_it_skips(folder: Path) -> None:
    out = folder / "out"  # inside what is translated
    (folder / "f.JSONL.gz").touch()
    plan = plan_files([folder], out)
    assert [(reason.partition(": ")[0], reason.partition(": ")[2][:35]) for reason in plan.skipped] == [
        (str(folder / "c.po"), "everything has a translation; --all"),
        (str(folder / "d.xyz"), "unknown format"),
        (str(folder / "f.JSONL.gz"), "a shard, which --on local translate"),
    ]
    report = translate_plan(plan, upper)
    assert sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file()) == [Path("a.md"), Path("in/b.html")]
    assert (out / "in/b.html").read_text() == "<p>TWO</p><p>SAME</p>"
    assert (report.translated, report.left, len(report.written)) == (4, 0, 2)
    with pytest.raises(QkvError, match=r"a\.md: exists already, and no file is replaced; name a new folder with --out"):
        plan_files([folder], out)


def test_patterns_take_all_their_files_and_each_text_is_translated_once(folder: Path, tmp_path: Path) -> None:
    asked: list[str] = []

    def translate(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return texts

    plan = plan_files([folder / "**/*.html", folder / "*.md"], tmp_path / "out")
    translate_plan(plan, translate)
    assert asked == ["two", "same", "no", "one"]  # a pattern may name hidden files
    assert (tmp_path / "out/in/b.html").exists() and (tmp_path / "out/a.md").exists()


def test_the_same_command_goes_on_after_an_interruption_and_another_does_not(folder: Path, tmp_path: Path) -> None:
    (folder / "in/b.html").write_text("".join(f"<p>text {i}</p>" for i in range(2 * CHUNK)), encoding="utf-8")
    calls: list[int] = []

    def stop(texts: list[str]) -> list[str]:
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return upper(texts)

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        translate_plan(plan_files([folder], out, fingerprint="x"), stop)
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"a.md", UNFINISHED}
    with pytest.raises(QkvError, match="exists already"):
        plan_files([folder], out, fingerprint="y")
    (folder / "a.md").write_text("two\n\nsame", encoding="utf-8")  # as long as before
    with pytest.raises(QkvError, match="exists already"):
        plan_files([folder], out, fingerprint="x")
    (folder / "a.md").write_text("one\n\nsame", encoding="utf-8")
    (out / "a.md").write_text("kept", encoding="utf-8")
    report = translate_plan(plan_files([folder], out, fingerprint="x"), upper)
    assert (out / "a.md").read_text() == "kept" and len(report.written) == 2
    assert (out / "in/b.html").read_text().startswith("<p>TEXT 0</p>") and not (out / UNFINISHED).exists()


def test_outputs_are_checked_before_any_work(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.md").write_text("x", encoding="utf-8")
    for inputs, out, reason in (
        ([folder / "a.md"], folder / "d.xyz", "exists already"),
        ([folder], None, "give --out FOLDER"),
        ([folder], folder / "a.md", "is a file"),
        ([folder / "a.md", tmp_path / "other/a.md"], tmp_path / "out", "would both be written"),
        ([folder / "*.none"], tmp_path / "out", "no file matches"),
        ([folder / "d.xyz"], tmp_path / "out", "cannot tell the format from the suffix"),
        ([tmp_path / "other", folder / "c.po"], tmp_path / "other", "everything has a translation in 1 of 1 files"),
    ):
        with pytest.raises(QkvError, match=reason):
            plan_files(inputs, out)
    assert not (tmp_path / "out").exists()


def test_all_broken_files_are_named_at_once(folder: Path, tmp_path: Path) -> None:
    (folder / "in/x.json").write_text("{", encoding="utf-8")
    with pytest.raises(QkvError, match=r"^\S*x\.json, line 1: not valid JSON.*$"):
        plan_files([folder], tmp_path / "out")
    (folder / "z.srt").write_text("1\nHello", encoding="utf-8")
    with pytest.raises(QkvError, match=r"^2 files cannot be read:\n  \S*in/x\.json.*\n  \S*z\.srt.*$"):
        plan_files([folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_goes_into_an_existing_folder_by_its_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    translate_plan(plan_files([folder / "in/b.html"], tmp_path / "out"), upper)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["b.html"]


def test_texts_without_letters_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "a.po"
    messages = ["42", "---", "%d\\t%% ", "a 42 %s"]
    file.write_text("\n\n".join(f'msgid "{message}"\nmsgstr ""' for message in messages))
    asked: list[str] = []

    def translate(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return [text.replace("a", "b") for text in texts]

    content = translate_plan(plan_files([file]), translate).content.decode()
    assert asked == ["a 42 %s"]
    assert [f'msgstr "{message}"' in content for message in (*messages[:3], "b 42 %s")] == [True] * 4


def test_progress_counts_each_text_once(folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    translate_plan(plan_files([folder], tmp_path / "out"), upper, lambda done, total: seen.append((done, total)))
    assert seen == [(3, 3)]
