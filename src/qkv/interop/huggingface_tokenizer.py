"""A tokenizer for transformers: tokenizer.json and the files that stand beside it, for `AutoTokenizer.from_pretrained`.

Around a text and around a pair of texts it puts what BERT's does, for an XLNet with the first token last; before what a GPT goes
on with, at most a beginning; after what a T5 reads, an end; around what other translators read, nothing. It finds its special
tokens in texts too, as all of theirs do and ours does not: a text that spells [MASK] has the token there.
"""

import json
from typing import Literal

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Library

from qkv.parts.two_stream import SUMMARY
from qkv.text.pretrained_tokenizer import SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, TOKENIZER_FILE
from qkv.text.tokenizer import Tokenizer

INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
OF_ENCODERS, OF_OTHERS = ("cls", "sep"), ("bos", "eos")  # what transformers calls a beginning and an end
Reads = Literal["both", "both, summary last", "prompt", "closed", "bare"]  # what kind of texts a model reads


def tokenizer_files(tokenizer: Tokenizer, max_positions: int, reads: Reads = "both") -> dict[str, str]:
    """The files of a tokenizer, by name, for a model that reads so many tokens.

    An XLNet's summary is last; a GPT reads prompts; sources are closed by an end, as a T5's are, or bare.
    """
    library = Library.from_str(tokenizer.to_json())
    framed = reads.startswith("both")
    names = _names(tokenizer, *(OF_ENCODERS if framed else OF_OTHERS))
    _add_special(library, tokenizer)
    library.post_processor = _around(tokenizer, reads)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_positions,
        "model_input_names": INPUTS if framed else INPUTS[::2],
        "clean_up_tokenization_spaces": False,
        **({"padding_side": "left"} if reads == "both, summary last" else {}),  # their XLNet takes the last token for the summary
        **names,
    }
    return {
        TOKENIZER_FILE: library.to_str(pretty=True),
        TOKENIZER_CONFIG: json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
        SPECIAL_TOKENS_MAP: json.dumps(names, indent=2, ensure_ascii=False) + "\n",
    }


def _around(tokenizer: Tokenizer, reads: Reads) -> processors.PostProcessor:
    """What is put around a text and around a pair."""
    if reads == "prompt":
        return _prompt(tokenizer)
    if reads == "closed":
        return _closed(tokenizer)
    if reads == "bare":
        return processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    return _framed(tokenizer, summary_last=reads != "both")


def _framed(tokenizer: Tokenizer, summary_last: bool) -> processors.PostProcessor:
    """A beginning before a text, or a summary after it, and an end after each of its parts."""
    first, last = tokenizer.pieces([tokenizer.bos, tokenizer.eos])
    before, after = ("", f" {first}:{SUMMARY}") if summary_last else (f"{first} ", "")
    return processors.TemplateProcessing(
        single=f"{before}$A {last}{after}",
        pair=f"{before}$A {last} $B:1 {last}:1{after}",
        special_tokens=[(first, tokenizer.bos), (last, tokenizer.eos)],
    )


def _prompt(tokenizer: Tokenizer) -> processors.PostProcessor:
    """A beginning where the model's texts have one, and nothing after."""
    (first,) = tokenizer.pieces([tokenizer.bos])
    before = f"{first} " if tokenizer.adds_bos else ""
    return processors.TemplateProcessing(single=f"{before}$A", pair=f"{before}$A $B", special_tokens=[(first, tokenizer.bos)])


def _closed(tokenizer: Tokenizer) -> processors.PostProcessor:
    """An end after a text, and after each of a pair."""
    (last,) = tokenizer.pieces([tokenizer.eos])
    return processors.TemplateProcessing(single=f"$A {last}", pair=f"$A {last} $B {last}", special_tokens=[(last, tokenizer.eos)])


def _names(tokenizer: Tokenizer, first: str, last: str) -> dict[str, str]:
    """What transformers calls the special tokens there are, and what they are spelled like."""
    roles = {"pad": tokenizer.pad, "unk": tokenizer.unk, first: tokenizer.bos, last: tokenizer.eos}
    if tokenizer.has_mask:
        roles["mask"] = tokenizer.mask
    return {f"{role}_token": tokenizer.pieces([number])[0] for role, number in roles.items()}


def _add_special(library: Library, tokenizer: Tokenizer) -> None:
    """Have the library find special tokens in texts; those of other makers' tokenizers it knows already."""
    if not tokenizer.made_by_qkv:
        return
    for number in sorted(tokenizer.special_ids):
        # Found in the text as it is normalised, the hidden word takes the space before it along, and what follows gets none.
        normalised = tokenizer.has_mask and number == tokenizer.mask
        library.add_special_tokens([AddedToken(tokenizer.pieces([number])[0], special=True, normalized=normalised)])
