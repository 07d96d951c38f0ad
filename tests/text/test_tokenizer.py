"""Tokenizers: decoding inverts encoding, text never becomes a special token, and training is deterministic."""

import json
import os
import pickle
import random
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from qkv.base.config import parse
from qkv.base.errors import CheckpointError, ConfigError, DataError, QkvError
from qkv.text.tokenizer import SPECIAL_TOKENS, Tokenizer, TokenizerConfig, train_tokenizer
from qkv.text.tokenizer_pipeline import MAX_PRE_TOKEN, build_normalizer, build_pre_tokenizer

KINDS = ("bpe", "byte-bpe", "wordpiece", "unigram", "characters", "words")
ANY_TEXT = ("bpe", "byte-bpe", "unigram")  # kinds that give back every text, from a vocabulary of 1,000
EXTRA = ("[MASK]", "<sep>")
LINES = [
    "The quick brown fox jumps over the lazy dog.",
    "Don't panic: the dog, the fox and the bear (all 3) are asleep...",
    "打开 Home Assistant 设置，然后重启。",
    "请在 Home Assistant 设置中重启 2024 年的设备。",
    "Der Bär läßt grüßen, die Straße ist naß.",
    "שלום עולם, مرحبا بالعالم; नमस्ते; привет, мир",
]
LITERALS = ["<s> <s> <s>", "</s></s> </s>", "<pad> a<pad>b <unk>", "[MASK] x[MASK]y <sep> <0x41> <0x0A>"]
CORPUS = (LINES + LITERALS) * 20
SEEN = [*LINES, *LITERALS, "  the  dog ", " 设置", "dog设置fox", "the\u00e4", "", " ", "   ", "...the", "3", "привет,שלום"]
UNSEEN = [
    "x\x00y",
    "\n\n a\tb\r",
    "👨‍👩‍👧 🇩🇪",
    "ｆｕｌｌ ﬁ ①",
    "q̣̈z",
    "日本語テキスト",
    "ภาษาไทย",
    "▁ ▁a",
    "<0xE4>",
    "\u2028\ufeff\u200b",
]


@cache
def made(kind: str, vocab: int = 1200, lowercase: bool = False) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab=vocab, lowercase=lowercase, special_tokens=EXTRA)  # type: ignore[arg-type]
    return train_tokenizer(config, iter(CORPUS))


def controls_in(tokenizer: Tokenizer, text: str) -> list[int]:
    """Control tokens other than <unk> among the ids of a text."""
    count = len(SPECIAL_TOKENS) + len(tokenizer.additional_special_tokens)
    return [number for number in tokenizer.encode(text) if number < count and number != Tokenizer.unk]


@pytest.mark.parametrize("vocab", [400, 1200])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "words"])
def test_text_of_seen_characters_comes_back(kind: str, vocab: int) -> None:
    tokenizer = made(kind, vocab)
    for text in SEEN:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode_batch(tokenizer.encode_batch(SEEN)) == SEEN


@pytest.mark.parametrize("kind", ANY_TEXT)
def test_any_text_comes_back(kind: str) -> None:
    tokenizer = made(kind)
    for text in (unicodedata.normalize("NFC", text) for text in [*UNSEEN, *random_texts()]):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert Tokenizer.unk not in ids


def random_texts() -> Iterator[str]:
    rng = random.Random(1)
    ranges = [(0, 0x80), (0x80, 0x700), (0x900, 0xD7FF), (0xE000, 0x110000), (0x300, 0x370), (0x4E00, 0x9FFF)]
    for _ in range(500):
        picks = [rng.choice(ranges) for _ in range(rng.randint(1, 30))]
        yield "".join(chr(rng.randrange(*pick)) if rng.random() < 0.7 else rng.choice("ab <>s ") for pick in picks)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_known_is_unk_and_the_rest_stays(kind: str) -> None:
    tokenizer = made(kind, 400)
    ids = tokenizer.encode("the ξύλο fox")
    expected = {"bpe": 4, "characters": 4, "unigram": 1, "wordpiece": 1, "words": 1, "byte-bpe": 0}[kind]
    assert ids.count(Tokenizer.unk) == expected
    assert tokenizer.decode(ids) == ("the " + "<unk>" * expected + " fox" if expected else "the ξύλο fox")


def test_words_keep_all_but_white_space() -> None:
    tokenizer = made("words")
    for text in SEEN[: len(LINES + LITERALS)]:
        assert tokenizer.pieces(tokenizer.encode(f"  {text}\t\n")) == text.split()
        assert tokenizer.decode(tokenizer.encode(text.replace(" ", " \u00a0\u3000 "))) == text


@pytest.mark.parametrize("kind", KINDS)
def test_other_normal_forms_become_nfc(kind: str) -> None:
    tokenizer = made(kind)
    decomposed = unicodedata.normalize("NFD", LINES[4])
    assert decomposed != LINES[4]
    assert tokenizer.encode(decomposed) == tokenizer.encode(LINES[4])


@pytest.mark.parametrize("kind", KINDS)
def test_lowercase(kind: str) -> None:
    tokenizer = made(kind, lowercase=True)
    ids = tokenizer.encode("THE Quick BROWN fox")
    assert tokenizer.decode(ids) == "the quick brown fox"
    assert Tokenizer.unk not in ids


SPANNED = [
    *LINES,
    "The  dog   läßt",
    "  the dog ",
    unicodedata.normalize("NFD", LINES[4]),
    "打开 Home  Assistant  设置，",
    "İstanbul",
    "x👨‍👩‍👧y",
    "",
    " ",
]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_found_in_the_text_as_it_was(kind: str, lowercase: bool) -> None:
    tokenizer = made(kind, lowercase=lowercase)
    for text, (ids, spans) in zip(SPANNED, tokenizer.encode_with_offsets(SPANNED), strict=True):
        assert ids == tokenizer.encode(text)
        for number, (start, end) in zip(ids, spans, strict=True):
            piece, part = tokenizer.pieces([number])[0].lstrip("▁"), text[start:end]
            assert part == part.lstrip()
            same = unicodedata.normalize("NFC", part)
            if number != Tokenizer.unk and not piece.startswith(("<0x", "\\")) and "İ" not in part:
                assert piece == (same.lower() if lowercase else same), (text, start, end)
        covered = {place for start, end in spans for place in range(start, end)}
        assert covered == {place for place, letter in enumerate(text) if not letter.isspace()}


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_as_inside_a_sentence(kind: str) -> None:
    tokenizer = made(kind)
    inside = [word.split(" ") for word in ("the fox", "the 设置", "the (")]
    for words in inside:
        together = tokenizer.encode_words(words)
        if kind != "words" and words[1] != "设置":
            assert tokenizer.decode([n for ids in together for n in ids]).strip() == " ".join(words)
            assert together[1] == tokenizer.encode(" ".join(words))[-len(together[1]) :]
        assert all(together)
    assert tokenizer.encode_words(["", "the"])[0] == [Tokenizer.unk]
    assert tokenizer.pieces(tokenizer.encode_words(["设"])[0])[0] in ("设", "<unk>")


@pytest.mark.parametrize("kind", KINDS)
def test_masks_in_a_text(kind: str) -> None:
    tokenizer = made(kind)
    hidden = tokenizer.encode_masked("[MASK] the [MASK] dog [MASK]设置[MASK], fox[MASK].")
    assert hidden.count(tokenizer.mask) == 5 and hidden[0] == tokenizer.mask == 4
    if kind in ("bpe", "unigram", "byte-bpe", "wordpiece"):
        pieces = " ".join(tokenizer.pieces(hidden))
        assert pieces == "[MASK] ▁the [MASK] ▁dog [MASK] 设置 [MASK] , ▁fox [MASK] ."
    assert tokenizer.encode_masked(LINES[0]) == tokenizer.encode(LINES[0])


def test_without_a_mask_token_it_says_how_to_get_one() -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind="words"), CORPUS)
    with pytest.raises(ConfigError, match=r'tokenizer.special_tokens=\["\[MASK\]"\]'):
        assert tokenizer.mask
    assert tokenizer.special_ids == frozenset(range(4)) and tokenizer.first_text_id == 4


@pytest.mark.parametrize("vocab", [400, 5000])
@pytest.mark.parametrize("kind", KINDS)
def test_text_never_becomes_a_control_token(kind: str, vocab: int) -> None:
    """Even though it was learned from a text full of their names, with room for every piece that can be learned."""
    tokenizer = made(kind, vocab)
    texts = [
        "</s> hello <pad>",
        *LITERALS,
        *SPECIAL_TOKENS,
        *EXTRA,
        "".join(SPECIAL_TOKENS),
        " ".join(SPECIAL_TOKENS),
        "x<s>x",
        " <s>",
        "<s",
    ]
    for text in texts:
        assert not controls_in(tokenizer, text), text
    seen = [text for text in texts if "hello" not in text]
    if kind != "words":
        assert tokenizer.decode_batch(tokenizer.encode_batch(seen)) == seen


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_control_names_alone_can_be_learned(kind: str) -> None:
    config = TokenizerConfig(kind=kind, vocab=300)  # type: ignore[arg-type]
    tokenizer = train_tokenizer(config, ["<s></s><pad> <s> </s> <pad> <unk>"] * 50)
    text = "<s> </s> <pad> <unk>"
    assert not controls_in(tokenizer, text)
    assert Tokenizer.unk not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_come_first_and_decode_to_nothing(kind: str) -> None:
    tokenizer = made(kind)
    assert (tokenizer.pad, tokenizer.unk, tokenizer.bos, tokenizer.eos) == (0, 1, 2, 3)
    assert tokenizer.additional_special_tokens == {"[MASK]": 4, "<sep>": 5}
    assert tokenizer.pieces(range(6)) == [*SPECIAL_TOKENS, *EXTRA]
    ids = tokenizer.encode("the dog.")
    assert tokenizer.decode([2, *ids, 4, 3, 5, 0, 0]) == tokenizer.decode(ids)
    assert tokenizer.decode([0, 2, 3]) == ""


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram", "wordpiece"])
def test_pieces_stay_within_a_script_and_digits_stand_alone(kind: str) -> None:
    tokenizer = made(kind, 5000)
    pieces = tokenizer.pieces(tokenizer.encode("请在Home Assistant设置中重启2024年的设备。"))
    assert "".join(pieces) == "请在Home▁Assistant设置中重启2024年的设备。"
    assert {"▁Assistant", "设置中重启", "。"} <= set(pieces) or {"▁Assistant", "设置", "。"} <= set(pieces)
    for piece in pieces:
        kinds = {"han" if "一" <= c <= "鿿" else "digit" if c.isdigit() else "latin" if c.isalpha() else "" for c in piece}
        assert len(kinds - {""}) <= 1
        assert sum(c.isdigit() for c in piece) <= 1


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_the_space_before_the_first_word_needs_no_space_in_the_text_learned_from(kind: str) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=50), ["你a好"])  # type: ignore[arg-type]
    assert tokenizer.decode(tokenizer.encode("a你")) == "a你"


def test_a_first_word_is_the_same_piece_as_in_the_middle() -> None:
    tokenizer = made("bpe", 5000)
    assert tokenizer.pieces(tokenizer.encode("the   dog")) == ["▁the", "▁", "▁", "▁dog"]
    assert tokenizer.pieces(tokenizer.encode("dog the dog")) == ["▁dog", "▁the", "▁dog"]
    assert tokenizer.encode("设置") == tokenizer.encode("，设置")[1:]  # Chinese is written without spaces, and gets none


@pytest.mark.parametrize(
    ("kind", "text", "pieces"),
    [
        ("bpe", "a\nの", ["▁a", "<0x0A>", "<0xE3>", "<0x81>", "<0xAE>"]),
        ("byte-bpe", "a\nの", ["▁a", "\\n", "\\xe3", "\\x81", "\\xae"]),
        ("characters", "a dog", ["a", "▁", "d", "o", "g"]),
        ("words", "the  dog cat.", ["the", "<unk>", "<unk>"]),
    ],
)
def test_pieces_can_be_read(kind: str, text: str, pieces: list[str]) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=1200), ["a the bad good dog."])  # type: ignore[arg-type]
    assert tokenizer.pieces(tokenizer.encode(text)) == pieces


@pytest.mark.parametrize("kind", KINDS)
def test_a_very_long_line(kind: str) -> None:
    tokenizer = made(kind)
    for text in ("the" * 60_000, "设" * 100_000, "." * 100_000, "a the " * 20_000 + "a"):
        ids = tokenizer.encode(text)
        assert kind == "words" or tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", ["the" * 100, "设" * 300, "!" * 300, "1" * 300, "\u0301" * 300, " " * 300, "ж" * 300, "ก" * 300])
def test_stretches_are_bounded(text: str) -> None:
    """The time of every model is linear in the text as long as its stretches are."""
    stretches = [
        stretch for stretch, _ in build_pre_tokenizer("bpe").pre_tokenize_str(build_normalizer("bpe", False).normalize_str(text))
    ]
    assert "".join(stretches) in (text, f" {text}")
    assert max(map(len, stretches)) <= MAX_PRE_TOKEN + 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_no_pieces(kind: str) -> None:
    tokenizer = made(kind)
    assert tokenizer.encode("") == []
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode_batch(["", "the"])[0] == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode_batch([[], tokenizer.encode("the")]) == ["", "the"]


@pytest.mark.parametrize("kind", KINDS)
def test_half_characters_are_refused(kind: str) -> None:
    with pytest.raises(DataError, match=r"U\+D83D at 3"):
        made(kind).encode("ab \ud83d")
    with pytest.raises(DataError, match="half a character"):
        made(kind).encode_batch(["fine", "\udc00"])
    with pytest.raises(DataError, match="half a character"):
        train_tokenizer(TokenizerConfig(kind=kind), ["\udc00"])  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[5000], [-1], [7, 1 << 40]])
def test_foreign_ids_are_refused(ids: list[int]) -> None:
    for use in (made("bpe").decode, made("bpe").pieces, lambda ids: made("bpe").decode_batch([ids])):
        with pytest.raises(DataError, match="is not among"):
            use(ids)


@pytest.mark.parametrize("kind", ANY_TEXT)
def test_any_ids_can_be_decoded(kind: str) -> None:
    """A model may put bytes together that are no text."""
    tokenizer = made(kind)
    rng = random.Random(2)
    for _ in range(100):
        ids = [rng.randrange(6, len(tokenizer)) for _ in range(20)]
        assert tokenizer.decode(ids).encode()
        assert len(tokenizer.pieces(ids)) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_learn_from(kind: str) -> None:
    for texts in ([], ["", ""]):
        with pytest.raises(DataError, match="no text to train"):
            train_tokenizer(TokenizerConfig(kind=kind), texts)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["a", "设", "\x00", "aa aa", "a" * 200])
def test_hardly_anything_to_learn_from(kind: str, text: str) -> None:
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=300), [text])  # type: ignore[arg-type]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_words_of_white_space_are_no_words() -> None:
    with pytest.raises(DataError, match="no text"):
        train_tokenizer(TokenizerConfig(kind="words"), [" \t "])


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram"])
def test_a_vocabulary_too_small_names_the_least_that_works(kind: str) -> None:
    with pytest.raises(DataError, match="at least") as caught:
        train_tokenizer(TokenizerConfig(kind=kind, vocab=50), CORPUS)  # type: ignore[arg-type]
    least = int(str(caught.value).partition("at least ")[2].partition(",")[0])
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=least), CORPUS)  # type: ignore[arg-type]
    assert len(tokenizer) == least
    assert tokenizer.decode(tokenizer.encode(LINES[2])) == LINES[2]


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_is_a_bound_and_is_reached(kind: str) -> None:
    size = {"words": 30, "characters": 60, "byte-bpe": 330, "unigram": 145}.get(kind, 220)
    assert len(train_tokenizer(TokenizerConfig(kind=kind, vocab=size), CORPUS)) == size  # type: ignore[arg-type]


def test_rare_characters_are_left_to_bytes() -> None:
    """Thousands of characters, most of them rare, must not fill the vocabulary."""
    rare = "".join(map(chr, range(0x4E00, 0x5800)))
    tokenizer = train_tokenizer(TokenizerConfig(vocab=1000), [*CORPUS, rare])
    assert len(tokenizer) == 1000
    assert tokenizer.decode(tokenizer.encode(rare)) == rare
    assert "▁the" in tokenizer.pieces(range(1000))


def test_min_count() -> None:
    texts = ["one two two three three three"]
    words = train_tokenizer(TokenizerConfig(kind="words", min_count=2), texts)
    assert words.pieces(range(4, len(words))) == ["three", "two"]
    letters = train_tokenizer(TokenizerConfig(kind="characters", min_count=5), texts)
    assert letters.pieces(range(4, len(letters))) == ["e", "▁", "t"]
    for kind in ("bpe", "unigram"):
        few, many = (train_tokenizer(TokenizerConfig(kind=kind, min_count=n), texts) for n in (4, 1))  # type: ignore[arg-type]
        assert len(few) < len(many)
    with pytest.raises(DataError, match="min_count"):
        train_tokenizer(TokenizerConfig(kind="words", min_count=9), texts)


def test_unigram_finds_what_words_are_made_of() -> None:
    rng = random.Random(5)
    stems = {rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") + rng.choice("xyw") for _ in range(40)}
    endings = {"ing", "est", "ful", "ous", "ity"}
    texts = [" ".join(rng.choice(sorted(stems)) + rng.choice(sorted(endings)) for _ in range(10)) for _ in range(500)]
    tokenizer = train_tokenizer(TokenizerConfig(kind="unigram", vocab=80), texts)
    found = set(tokenizer.pieces(range(len(tokenizer))))
    assert endings <= found
    assert sum(f"▁{stem}" in found for stem in stems) > len(stems) / 2


TRAIN_ALL = """
import sys
from pathlib import Path
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
lines = Path(sys.argv[1]).read_text(encoding="utf-8").split("\\n")
for kind in sys.argv[3:]:
    train_tokenizer(TokenizerConfig(kind=kind, vocab=1100), iter(lines)).save(Path(sys.argv[2]) / f"{kind}.json")
"""


def test_training_leaves_nothing_to_chance(tmp_path: Path) -> None:
    rng = random.Random(3)
    words = ["".join(rng.choices("aeinrst设置中", k=rng.randint(1, 7))) for _ in range(1000)]
    text = tmp_path / "text"
    text.write_text("\n".join(" ".join(rng.choices(words, k=9)) for _ in range(1000)), encoding="utf-8")
    runs = [
        subprocess.Popen([sys.executable, "-c", TRAIN_ALL, text, tmp_path / seed, *KINDS], env=environment(seed))
        for seed in ("1", "2")
    ]
    assert [run.wait(60) for run in runs] == [0, 0]
    for kind in KINDS:
        one, two = (tmp_path / seed / f"{kind}.json" for seed in ("1", "2"))
        assert one.read_bytes() == two.read_bytes(), kind


def environment(seed: str = "0") -> dict[str, str]:
    """Ours, less what importing the tokenizer has already settled."""
    kept = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    return {**kept, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}


FORKED = """
import os
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
tokenizer = train_tokenizer(TokenizerConfig(kind="bpe", vocab=300), ["a few words to learn"] * 100)
ids = tokenizer.encode_batch(["a few words"] * 1000)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_batch(["a few words"] * 1000) == ids else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.needs_fork
def test_forked_processes_encode_without_a_warning() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind)
    path = tmp_path / "new" / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    library = tokenizers.Tokenizer.from_file(str(path))
    texts = [*SEEN, *UNSEEN]
    ids = tokenizer.encode_batch(texts)
    assert loaded.encode_batch(texts) == ids == [library.encode(text).ids for text in texts]
    assert loaded.decode_batch(ids) == [library.decode(one) for one in ids]
    assert loaded.pieces(ids[0]) == tokenizer.pieces(ids[0])
    assert (loaded.additional_special_tokens, len(loaded)) == (tokenizer.additional_special_tokens, len(tokenizer))
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]


def test_it_can_be_sent_to_another_process() -> None:
    copy = pickle.loads(pickle.dumps(made("unigram")))
    assert copy.encode_batch(SEEN) == made("unigram").encode_batch(SEEN)


def test_fingerprints_tell_tokenizers_apart(tmp_path: Path) -> None:
    prints = {made(kind, vocab).fingerprint() for kind in KINDS for vocab in (400, 1200)}
    same = {"words", "characters", "wordpiece", "byte-bpe"}  # these need no more than 400 here
    assert len(prints) == 2 * len(KINDS) - sum(len(made(kind, 400)) == len(made(kind)) for kind in same)
    assert made("bpe", lowercase=True).fingerprint() not in prints
    made("bpe").save(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json").fingerprint() == made("bpe").fingerprint()


def damaged(content: str) -> Iterator[str]:
    values = json.loads(content)
    yield content[: len(content) // 2]
    yield ""
    yield "[1, 2]"
    yield json.dumps({**values, "post_processor": None})
    yield json.dumps({**values, "added_tokens": [added_token()]})
    yield json.dumps({**values, "model": {**values["model"], "vocab": {"a": 0, "<unk>": 1}, "merges": []}})
    yield tokenizers.Tokenizer(tokenizers.models.BPE()).to_str()


def added_token() -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": 3, "content": "</s>", "special": True, **flags}


def test_files_that_are_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ConfigError, match="no such file"):
        Tokenizer.load(path)
    made("bpe").save(path)
    for content in damaged(path.read_text(encoding="utf-8")):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(CheckpointError, match=str(path)) as caught:
            Tokenizer.load(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(b"\xff\xfe\x00")
    for wrong in (path, tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read"):
            Tokenizer.load(wrong)


def test_damage_anywhere_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    made("unigram", 400).save(path)
    good = path.read_bytes()
    rng = random.Random(4)
    for _ in range(100):
        path.write_bytes(bytes(rng.randrange(256) if rng.random() < 3e-4 else byte for byte in good))
        try:
            Tokenizer.load(path).encode("the dog")
        except QkvError as error:
            assert "\n" not in str(error)


def test_a_ready_tokenizer_is_taken_as_it_is(tmp_path: Path) -> None:
    made("unigram").save(tmp_path / "t.json")
    config = TokenizerConfig(file=str(tmp_path / "t.json"))
    assert train_tokenizer(config, []).fingerprint() == made("unigram").fingerprint()
    with pytest.raises(ConfigError, match="leave out kind"):
        parse(TokenizerConfig, {"file": "t.json", "kind": "words"}, "recipe")


@pytest.mark.parametrize("name", ["MASK", "設定", "...", "7", "", " ", "a b", "[MASK ]", "x"])
def test_control_tokens_that_text_could_spell_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"\[MASK\] or <sep>"):
        parse(TokenizerConfig, {"special_tokens": [name]}, "recipe")


@pytest.mark.parametrize("names", [["<s>"], ["[A]", "[A]"], ["<0x41>"]])
def test_control_tokens_have_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="taken"):
        parse(TokenizerConfig, {"special_tokens": names}, "recipe")


@pytest.mark.parametrize("values", [{"kind": "bp"}, {"vocab": 4}, {"min_count": 0}, {"vocabulary": 8}])
def test_wrong_settings_are_named(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        parse(TokenizerConfig, values, "recipe")


@pytest.mark.parametrize("kind", ["byte-bpe", "bpe", "unigram", "wordpiece", "characters"])
def test_sizes_add_up_to_the_bytes_of_the_text(kind: Any) -> None:
    lines = ["Der Hund läuft schnell.", "打开 设置 und café"]
    tokenizer = train_tokenizer(TokenizerConfig(kind=kind, vocab=1200 if kind in ("bpe", "unigram") else 400), lines * 30)
    sizes, text = tokenizer.byte_lengths(), "Der café läuft"
    ids = tokenizer.encode(text)
    assert tokenizer.unk not in ids and len(sizes) == len(tokenizer)
    first = kind != "characters"  # the space before the first word
    assert sum(sizes[number] for number in ids) == len(text.encode()) + first
    assert not any(sizes[number] for number in tokenizer.special_ids)
