"""The cleaning of texts, written into a tokenizer.json for programs that do not clean: they then get the ids that qkv gets.

qkv cleans a text with `normalise` before it encodes it, and splits a text at [MASK] before the parts are encoded. Other programs
give the raw text to the tokenizer's normalizer. The library has its own, older table of Unicode: combining marks that are
missing there may keep another order than in `normalise`.
"""

from tokenizers import Regex, normalizers
from tokenizers import Tokenizer as Library

from qkv.text.special_tokens import MASK
from qkv.text.tokenizer import Tokenizer
from qkv.text.tokenizer_pipeline import UNSPACED

SPACE = r"\s\x1c-\x1f"  # white space as Python's str.strip has it
ANY_MASK = MASK.replace("[", r"\[").replace("]", r"\]")


def with_cleaning(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that cleans raw text itself; one of another maker stays as it is."""
    if not tokenizer.made_by_qkv:
        return tokenizer
    library = Library.from_str(tokenizer.to_json())
    mask = build_mask_spacing(tokenizer.whole_words) if tokenizer.has_mask and tokenizer.prepends_space else []
    library.normalizer = normalizers.Sequence([*build_cleaning(), *mask, library.normalizer])
    return Tokenizer(library)


def build_cleaning() -> list[normalizers.Normalizer]:
    """Build the steps of `normalise`: NFC, tabs and line breaks replaced by a space, and no white space at the ends."""
    return [
        normalizers.NFC(),
        normalizers.Replace(Regex(r"[\t\n\r]+"), " "),
        # Looked for at the beginning of white space only, which keeps time linear in its length.
        normalizers.Replace(Regex(rf"\A[{SPACE}]+|(?<![{SPACE}])[{SPACE}]+\z"), ""),
    ]


def build_mask_spacing(whole_words: bool) -> list[normalizers.Normalizer]:
    """Build the steps that put spaces around [MASK] as `encode_masked` does: one before it, and after it at most one.

    The first word of a text gets its space later, from the tokenizer's own normalizer; so does a [MASK] at the beginning.
    """
    before = normalizers.Replace(Regex(rf"(?<=[^{SPACE}])[{SPACE}]*{ANY_MASK}"), f" {MASK}")
    if whole_words:
        return [before, normalizers.Replace(Regex(rf"{ANY_MASK}[{SPACE}]*"), f"{MASK} ")]
    unspaced = normalizers.Replace(Regex(rf"{ANY_MASK}[{SPACE}]+(?=[{UNSPACED}])"), MASK)
    return [before, unspaced, normalizers.Replace(Regex(rf"{ANY_MASK}[{SPACE}]+"), f"{MASK} ")]
