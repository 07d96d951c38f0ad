"""The steps of our tokenizers around their model: normalizer, pre-tokenizer and decoder, by kind of tokenizer.

Pieces keep their spaces, a word's space in front of it, so that joining the pieces gives back the text exactly. The normalizer
puts a space before the first word, as a word in the middle has one too, and the decoder removes it; scripts without spaces get
none. Pre-tokens are the spans that no piece may cross. They end at a change of script, between letters, digits and signs
(as in SentencePiece, Kudo and Richardson 2018), and after 64 characters, which keeps time linear in the length of the text.
"""

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

MAX_PRE_TOKEN = 64  # characters
EAST_ASIAN = r"\p{Han}\p{Bopomofo}\p{Katakana}\u3040-\u30ff"
SOUTHEAST_ASIAN = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
FULL_WIDTH_SIGNS = r"\u3000-\u303f\uff00-\uffef"
PRE_TOKENS = "|".join(
    [
        rf"[{EAST_ASIAN}]{{1,{MAX_PRE_TOKEN}}}",
        rf"[{SOUTHEAST_ASIAN}]{{1,{MAX_PRE_TOKEN}}}",
        rf" ?[\p{{Latin}}\p{{M}}]{{1,{MAX_PRE_TOKEN}}}",
        rf" ?[\p{{L}}\p{{M}}&&[^\p{{Latin}}{EAST_ASIAN}{SOUTHEAST_ASIAN}]]{{1,{MAX_PRE_TOKEN}}}",
        r" ?\p{N}",
        rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]{{1,{MAX_PRE_TOKEN}}}",
        rf"\s{{1,{MAX_PRE_TOKEN}}}(?=\s)",
        r"\s",
    ]
)
UNSPACED = EAST_ASIAN + SOUTHEAST_ASIAN + FULL_WIDTH_SIGNS  # characters before which a first word gets no space
UNSPACED_START = rf"\A (?=[{UNSPACED}])"


def build_normalizer(kind: str, lowercase: bool) -> normalizers.Normalizer:
    """Build the normalizer: NFC, lower case if wanted, and a space before the first word."""
    steps: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if kind == "words":
        steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Prepend(" ")]
    elif kind != "characters":
        # Prepended and removed again, as the library mishandles replacing nothing by a space.
        steps += [normalizers.Prepend(" "), normalizers.Replace(Regex(UNSPACED_START), "")]
    return normalizers.Sequence(steps)


def build_pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    """Build the pre-tokenizer, which splits a normalised text into pre-tokens."""
    if kind in ("words", "characters"):
        return pre_tokenizers.Split(" ", "merged_with_next")
    split = pre_tokenizers.Split(Regex(PRE_TOKENS), "isolated")
    if kind != "byte-bpe":
        return split
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def build_decoder(kind: str) -> decoders.Decoder:
    """Build the decoder, which joins pieces to a text."""
    first_space = decoders.Strip(" ", 1, 0)
    if kind == "characters":
        return decoders.Fuse()
    if kind == "byte-bpe":
        return decoders.Sequence([decoders.ByteLevel(), first_space])
    if kind in ("words", "wordpiece"):  # every word has its space, except the unknown one
        return decoders.Sequence([decoders.Replace(Regex(r"\A<unk>\z"), " <unk>"), decoders.Fuse(), first_space])
    return decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), first_space])


def check_special_token_name(name: str) -> None:
    """Refuse a name that lies inside one pre-token, as a piece of text could then be spelled like it."""
    pre_tokens = pre_tokenizers.Split(Regex(PRE_TOKENS), "isolated").pre_tokenize_str(name)
    if len(pre_tokens) < 2 or any(letter.isspace() for letter in name):
        raise ValueError(f"special token {name!r} could be a piece of text; name it like [MASK] or <sep>")
