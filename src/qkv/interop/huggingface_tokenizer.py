"""A tokenizer for transformers: tokenizer.json and the files that stand beside it, for `AutoTokenizer.from_pretrained`.

Around a text and around a pair of texts it puts what BERT's does. Unlike ours it finds its special tokens in texts too, as all
of theirs do: a text that spells [MASK] has the token there.
"""

import json

from tokenizers import AddedToken, processors
from tokenizers import Tokenizer as Library

from qkv.text.foreign import FILE, NAMES, SETTINGS
from qkv.text.tokenizer import Tokenizer

INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


def tokenizer_files(tokenizer: Tokenizer, places: int) -> dict[str, str]:
    """The files of a tokenizer, by name, for a model that reads so many tokens."""
    library = Library.from_str(tokenizer.content())
    names = _names(tokenizer)
    _add_special(library, tokenizer)
    first, last = names["cls_token"], names["sep_token"]
    library.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {last} $B:1 {last}:1",
        special_tokens=[(first, tokenizer.bos), (last, tokenizer.eos)],
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": places,
        "model_input_names": INPUTS,
        "clean_up_tokenization_spaces": False,
        **names,
    }
    return {
        FILE: library.to_str(pretty=True),
        SETTINGS: json.dumps(settings, indent=2, ensure_ascii=False) + "\n",
        NAMES: json.dumps(names, indent=2, ensure_ascii=False) + "\n",
    }


def _names(tokenizer: Tokenizer) -> dict[str, str]:
    """What transformers calls the special tokens there are, and what they are spelled like."""
    roles = {"pad": tokenizer.pad, "unk": tokenizer.unk, "cls": tokenizer.bos, "sep": tokenizer.eos}
    if tokenizer.has_mask:
        roles["mask"] = tokenizer.mask
    return {f"{role}_token": tokenizer.pieces([number])[0] for role, number in roles.items()}


def _add_special(library: Library, tokenizer: Tokenizer) -> None:
    """Have the library find special tokens in texts; those of other makers' tokenizers it knows already."""
    if not tokenizer.ours:
        return
    for number in sorted(tokenizer.specials):
        # Found in the text as it is normalised, the hidden word takes the space before it along, and what follows gets none.
        normalised = tokenizer.has_mask and number == tokenizer.mask
        library.add_special_tokens([AddedToken(tokenizer.pieces([number])[0], special=True, normalized=normalised)])
