"""Phrases that outputs must contain: terms of a glossary, and placeholders of a source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Phrase:
    """A phrase that an output must contain, in one of several forms."""

    forms: tuple[tuple[int, ...], ...]  # token ids of each form; any of them will do
    once: bool = False  # whether none of the forms may occur a second time
