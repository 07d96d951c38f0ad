"""Profiles of languages: short texts are told apart, also of languages that no library knows, and unknown ones are noticed."""

import random
from pathlib import Path

import numpy as np
import pytest

from qkv.base.errors import CheckpointError
from qkv.folder.language_profiles import (
    PROFILES,
    ProfilePair,
    copy_language_profiles,
    read_language_profiles,
    save_language_profiles,
)
from qkv.text.language_profile import MOST, LanguageProfile, unknown_language_score


def texts_of(syllables: str, count: int, seed: int) -> list[str]:
    """Texts of a made-up language, whose words have two or three of its syllables."""
    rng, some = random.Random(seed), syllables.split()
    words = ["".join(rng.choices(some, k=rng.randint(2, 3))) for _ in range(400)]
    rng = random.Random(seed + 100)
    return [" ".join(rng.choices(words, k=6)).capitalize() + "." for _ in range(count)]


TEXTS = {"one": texts_of("ba ke li mo nu ta", 500, 1), "two": texts_of("bak il mon uta eb ok", 500, 2)}
PROFILES_OF = {code: LanguageProfile.of(texts[:400]) for code, texts in TEXTS.items()}


def profile(code: str) -> LanguageProfile:
    found = PROFILES_OF[code]
    assert found is not None
    return found


def test_texts_of_five_words_are_told_apart() -> None:
    right = total = 0
    for code, texts in TEXTS.items():
        for text in texts[400:]:
            scores = {other: profile(other).score(" ".join(text.split()[:5])) for other in TEXTS}
            right, total = right + (max(scores, key=lambda one: scores[one]) == code), total + 1
            assert scores[code] > unknown_language_score(" ".join(text.split()[:5]))
    assert right > 0.95 * total


def test_case_digits_and_signs_do_not_count() -> None:
    assert profile("one").score("Bake, 12 limo!") == profile("one").score("bake limo")
    assert profile("one").score("42 --- !") == profile("one").score("")


def test_other_scripts_are_unknown() -> None:
    for text in ("太阳很大", "Привет, как дела?", "wzx qyj vff"):
        assert profile("one").score(text) < unknown_language_score(text)


def test_profiles_of_one_language_are_merged() -> None:
    halves = [LanguageProfile.of(TEXTS["one"][start:400:2]) for start in (0, 1)]
    merged = LanguageProfile.merged([half for half in halves if half is not None])
    text = TEXTS["one"][450]
    assert merged.characters == pytest.approx(profile("one").characters, rel=0.01)
    assert merged.score(text) == pytest.approx(profile("one").score(text), rel=0.1)


def test_a_profile_is_small_whatever_the_corpus() -> None:
    rng = random.Random(1)
    many = LanguageProfile.of("".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=60)) for _ in range(3000))
    assert many is not None and len(many.sequences) == len(many.counts) == MOST
    assert LanguageProfile.of(["42", "..."]) is None and LanguageProfile.of([]) is None


def test_profiles_are_written_and_read(tmp_path: Path) -> None:
    save_language_profiles(tmp_path, ProfilePair(profile("one"), None))
    (tmp_path / "copy").mkdir()
    copy_language_profiles(tmp_path, tmp_path / "copy")
    source, target = read_language_profiles(tmp_path / "copy")
    assert target is None and source is not None and source.characters == profile("one").characters
    np.testing.assert_array_equal(source.sequences, profile("one").sequences)
    assert source.score("bake limo") == profile("one").score("bake limo")
    content = (tmp_path / PROFILES).read_bytes()
    (tmp_path / PROFILES).write_bytes(content[:100])
    with pytest.raises(CheckpointError, match="damaged"):
        read_language_profiles(tmp_path)
    assert read_language_profiles(tmp_path / "none") == (None, None)
