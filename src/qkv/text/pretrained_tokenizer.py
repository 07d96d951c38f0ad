"""Tokenizers of pretrained models: Hugging Face's tokenizer.json, BERT's vocab.txt, or GPT's vocab.json and merges.txt.

Pieces and ids stay as they are, since the model's weights belong to them. The roles of the special tokens (bos, eos, pad, unk,
mask) come from the files beside it, or from the tokens' usual names. They are then stored in tokenizer.json itself, so that a
run's folder needs no other file.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from qkv.base.errors import CheckpointError, QkvError
from qkv.text.tokenizer import WORD_END, Tokenizer

TOKENIZER_FILE, VOCAB_TXT, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
VOCAB_JSON, MERGES_TXT = "vocab.json", "merges.txt"  # a GPT's
# For each role: the keys of the settings that name its token, and the token's usual names.
ROLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pad": (("pad_token",), ("[PAD]", "<pad>")),
    "unk": (("unk_token",), ("[UNK]", "<unk>")),
    "bos": (("cls_token", "bos_token"), ("[CLS]", "<cls>", "<s>")),
    "eos": (("sep_token", "eos_token"), ("[SEP]", "<sep>", "</s>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}
END_OF_TEXT = "<|endoftext|>"  # GPT-2's one special token
LONGEST_WORD = 100  # characters; BERT's tokenizers treat longer words as unknown


def load_pretrained_tokenizer(folder: Path, causal: bool = False, first: int | None = None) -> Tokenizer:
    """Load the tokenizer in a checkpoint's folder; a causal model's may have one special token for all roles.

    `first` is the id with which T5 starts decoding, which the settings seldom name as bos.
    """
    settings = read_json_object(folder / TOKENIZER_CONFIG)
    if (folder / TOKENIZER_FILE).exists():
        library = _library(folder / TOKENIZER_FILE)
    elif (folder / VOCAB_TXT).exists():
        library = _word_pieces(folder / VOCAB_TXT, settings)
    elif (folder / VOCAB_JSON).exists() and (folder / MERGES_TXT).exists():
        library = _byte_pairs(folder)
    else:
        raise CheckpointError(f"{folder}: no {TOKENIZER_FILE} and no {VOCAB_TXT} there; save the tokenizer beside the model")
    try:
        return assign_special_tokens(library, {**read_json_object(folder / SPECIAL_TOKENS_MAP), **settings}, causal, first)
    except QkvError as error:
        raise CheckpointError(f"{folder}: {error}") from None


def appends_eos(folder: Path, eos: int) -> bool:
    """Return whether the tokenizer.json of a folder appends that token to a text."""
    return _library(folder / TOKENIZER_FILE).encode("a").ids[-1:] == [eos]


def assign_special_tokens(library: Library, named: dict[str, Any], causal: bool = False, first: int | None = None) -> Tokenizer:
    """Wrap a tokenizer of the library; `named` are settings that name its special tokens, such as cls_token."""
    known = library.get_vocab(with_added_tokens=True)
    roles = {role: _name(known, named, *words) for role, words in ROLES.items()}
    if causal:
        end = roles["eos"] or _name(known, {}, (), (END_OF_TEXT,)) or roles["unk"]
        roles |= {role: roles[role] or end for role in ("pad", "unk", "bos", "eos")}
    if first is not None:
        roles["bos"] = library.id_to_token(first)
    for role, name in roles.items():
        if name is None and role != "mask":
            keys, usual = ROLES[role]
            raise CheckpointError(f"the tokenizer has no {usual[0]}; name one as {keys[0]} in {TOKENIZER_CONFIG}")
    library.no_padding()
    library.no_truncation()
    special = {token.content for token in library.get_added_tokens_decoder().values() if token.special}
    library.add_special_tokens([name for name in roles.values() if name and name not in special])
    tokens = {role: (name, known[name]) for role, name in roles.items() if name}
    # A prompt has no eos, and bos only if the original tokenizer adds one.
    single = "bos $A eos" if not causal else "bos $A" if library.encode("a").ids[:1] == [tokens["bos"][1]] else "$A"
    library.post_processor = special_token_template(tokens, single)
    return Tokenizer(library)


def special_token_template(tokens: dict[str, tuple[str, int]], single: str = "bos $A eos") -> processors.PostProcessor:
    """Build the template around a text and around a pair; `tokens` are the special tokens, name and id by role."""
    special = [{"id": role, "ids": [number], "tokens": [name]} for role, (name, number) in tokens.items()]
    return processors.TemplateProcessing(single=single, pair="bos $A eos $B:1 eos:1", special_tokens=special)


def _name(known: dict[str, int], named: dict[str, Any], keys: tuple[str, ...], usual: tuple[str, ...]) -> str | None:
    """Return the name of the token with a role, if the vocabulary has it."""
    return next((name for name in (*_names_in(named, keys), *usual) if name in known), None)


def _names_in(named: dict[str, Any], keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        value = named.get(key)
        name = value.get("content") if isinstance(value, dict) else value
        if isinstance(name, str):
            yield name


def _library(path: Path) -> Library:
    try:
        return Library.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        why = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path}: damaged, or not a tokenizer.json ({why})") from None


def _word_pieces(path: Path, settings: dict[str, Any]) -> Library:
    """Build BERT's tokenizer (Devlin et al. 2019, section 3): words, each split into the longest pieces that fit."""
    try:
        pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read as a vocabulary, a piece a line: {error}") from None
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if len(vocabulary) < len(pieces):
        raise CheckpointError(f"{path}: a piece occurs twice; each line must hold another")
    unknown = next(_names_in(settings, ROLES["unk"][0]), "[UNK]")
    library = Library(models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=LONGEST_WORD))
    library.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    return library


def _byte_pairs(folder: Path) -> Library:
    """Build a GPT's tokenizer: byte-level BPE (Radford et al. 2019, section 2.2); in the first GPT, BPE over letters."""
    letters = any(piece.endswith(WORD_END) for piece in read_json_object(folder / VOCAB_JSON))
    options = {"unk_token": ROLES["unk"][1][1], "end_of_word_suffix": WORD_END} if letters else {}
    try:
        library = Library(models.BPE.from_file(str(folder / VOCAB_JSON), str(folder / MERGES_TXT), **options))
    except Exception as error:  # the library raises nothing narrower
        why = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{folder}: {VOCAB_JSON} and {MERGES_TXT} are damaged, or do not belong together ({why})") from None
    if letters:
        library.normalizer = normalizers.BertNormalizer(lowercase=True)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.BPEDecoder(suffix=WORD_END)
    else:
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
    return library


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is no such file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable ({error})") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected keys and values, got {type(values).__name__}")
    return values
