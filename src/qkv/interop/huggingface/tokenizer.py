"""Tokenizer files for transformers: tokenizer.json and those beside it, for `AutoTokenizer.from_pretrained`.

As all of their tokenizers, the exported one finds special tokens in texts, which ours does not: a text that spells [MASK] gets
that token. It cleans texts as qkv does before it encodes them, but for a GPT's prompts, which qkv takes as they are.
"""

import json
from typing import Literal

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Library

from qkv.parts.two_stream import SUMMARY
from qkv.text.cleaning import with_cleaning
from qkv.text.pretrained_tokenizer import SPECIAL_TOKENS_MAP, TOKENIZER_CONFIG, TOKENIZER_FILE
from qkv.text.tokenizer import Tokenizer

INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
# Which special tokens stand around a text: BERT's, those of an XLNet, whose first token is its last; perhaps a bos before a
# prompt; eos after a T5's texts; none.
Template = Literal["encoder", "xlnet", "prompt", "eos", "none"]


def tokenizer_files(tokenizer: Tokenizer, max_length: int, template: Template = "encoder") -> dict[str, str]:
    """Return the files of a tokenizer, by name, for a model that reads texts of at most `max_length` tokens."""
    encoder = template in ("encoder", "xlnet")
    first, last = ("cls", "sep") if encoder else ("bos", "eos")  # transformers' names of the first and the last token
    roles = {"pad": tokenizer.pad, "unk": tokenizer.unk, first: tokenizer.bos, last: tokenizer.eos}
    if tokenizer.has_mask:
        roles["mask"] = tokenizer.mask
    names = {f"{role}_token": tokenizer.pieces([number])[0] for role, number in roles.items()}
    library = Library.from_str((tokenizer if template == "prompt" else with_cleaning(tokenizer)).to_json())
    if tokenizer.made_by_qkv:  # in other tokenizers the library finds special tokens already
        for number in sorted(tokenizer.special_ids):
            # In normalised text, [MASK] takes the space before it along, so that the word after it gets none.
            normalised = tokenizer.has_mask and number == tokenizer.mask
            library.add_special_tokens([AddedToken(tokenizer.pieces([number])[0], special=True, normalized=normalised)])
    library.post_processor = _template(tokenizer, template)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": INPUTS if encoder else INPUTS[::2],
        "clean_up_tokenization_spaces": False,
        **({"padding_side": "left"} if template == "xlnet" else {}),  # transformers' XLNet summarises a text by its last token
        **names,
    }
    return {
        TOKENIZER_FILE: library.to_str(pretty=True),
        TOKENIZER_CONFIG: json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
        SPECIAL_TOKENS_MAP: json.dumps(names, indent=2, ensure_ascii=False) + "\n",
    }


def _template(tokenizer: Tokenizer, template: Template) -> processors.PostProcessor:
    """Build the post-processor that puts special tokens around a text and around a pair of texts."""
    bos, eos = tokenizer.pieces([tokenizer.bos, tokenizer.eos])
    first, last = (bos, tokenizer.bos), (eos, tokenizer.eos)
    before = f"{bos} " if tokenizer.adds_bos else ""
    templates: dict[Template, tuple[str, str, list[tuple[str, int]]]] = {
        "encoder": (f"{bos} $A {eos}", f"{bos} $A {eos} $B:1 {eos}:1", [first, last]),
        "xlnet": (f"$A {eos} {bos}:{SUMMARY}", f"$A {eos} $B:1 {eos}:1 {bos}:{SUMMARY}", [first, last]),
        "prompt": (f"{before}$A", f"{before}$A $B", [first]),
        "eos": (f"$A {eos}", f"$A {eos} $B {eos}", [last]),
        "none": ("$A", "$A $B", []),
    }
    single, pair, special_tokens = templates[template]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=special_tokens)
