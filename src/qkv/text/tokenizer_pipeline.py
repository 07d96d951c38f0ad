"""The way a text takes through each kind of tokenizer: normalised, cut into stretches, these into pieces, and joined again.

Pieces hold their spaces as they are, a word's space in front of it, so that joining pieces gives the text back exactly.
A space is put before the first word, as a word in the middle has one too, and taken off again when joining; scripts that
write no spaces get none. Stretches are what no piece may cross: a change of script, the edge between letters, digits and
signs (as in SentencePiece, Kudo and Richardson 2018), and 64 characters, which keeps time linear in the text's length.
"""

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

LONGEST = 64  # characters in one stretch
EASTERN = r"\p{Han}\p{Bopomofo}\p{Katakana}\u3040-\u30ff"
SOUTHERN = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
WIDE_SIGNS = r"\u3000-\u303f\uff00-\uffef"
STRETCHES = "|".join(
    [
        rf"[{EASTERN}]{{1,{LONGEST}}}",
        rf"[{SOUTHERN}]{{1,{LONGEST}}}",
        rf" ?[\p{{Latin}}\p{{M}}]{{1,{LONGEST}}}",
        rf" ?[\p{{L}}\p{{M}}&&[^\p{{Latin}}{EASTERN}{SOUTHERN}]]{{1,{LONGEST}}}",
        r" ?\p{N}",
        rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]{{1,{LONGEST}}}",
        rf"\s{{1,{LONGEST}}}(?=\s)",
        r"\s",
    ]
)
UNSPACED_START = rf"\A (?=[{EASTERN}{SOUTHERN}{WIDE_SIGNS}])"


def build_normalizer(kind: str, lowercase: bool) -> normalizers.Normalizer:
    """NFC, and the space before the first word."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if kind == "words":
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Prepend(" ")]
    elif kind != "characters":
        # Put and taken away again, as the library mishandles a replacement of nothing by a space.
        steps += [normalizers.Prepend(" "), normalizers.Replace(Regex(UNSPACED_START), "")]
    return normalizers.Sequence(steps)


def build_pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """What cuts a normalised text into stretches."""
    if kind in ("words", "characters"):
        return pre_tokenizers.Split(" ", "merged_with_next")
    split = pre_tokenizers.Split(Regex(STRETCHES), "isolated")
    if kind != "byte-bpe":
        return split
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def build_decoder(kind: str) -> decoders.Decoder:
    """What makes pieces a text again."""
    first_space = decoders.Strip(" ", 1, 0)
    if kind == "characters":
        return decoders.Fuse()
    if kind == "byte-bpe":
        return decoders.Sequence([decoders.ByteLevel(), first_space])
    if kind in ("words", "wordpiece"):  # every word carries its space but the unknown one
        return decoders.Sequence([decoders.Replace(Regex(r"\A<unk>\z"), " <unk>"), decoders.Fuse(), first_space])
    return decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), first_space])


def check_special_token_name(name: str) -> None:
    """A control token's name must lie across the edge of a stretch: then no piece of text can be spelled like it."""
    cut = pre_tokenizers.Split(Regex(STRETCHES), "isolated").pre_tokenize_str(name)
    if len(cut) < 2 or any(letter.isspace() for letter in name):
        raise ValueError(f"control token {name!r} could be a piece of text; name it like [MASK] or <sep>")
