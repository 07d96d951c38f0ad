"""Marian checkpoints as transformers writes them, with SentencePiece models of two made-up languages."""

import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

LETTERS = ("aeinrstlo", "eirsnußäö設置中")  # of source and target: some are common to both
CODE = ">>de<<"


def corpus(side: int) -> list[str]:
    rng = random.Random(side)
    lexicon = ["".join(rng.choices(LETTERS[side], k=rng.randint(1, 8))) for _ in range(200)]
    return [" ".join(rng.choices(lexicon, k=8)) + rng.choice([".", "!", " 12,5"]) for _ in range(300)]


@cache
def trained(side: int, **options: Any) -> bytes:
    model = io.BytesIO()
    settings = {"vocab_size": 150, "model_type": "unigram", "character_coverage": 1.0, "hard_vocab_limit": False, **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus(side)), model_writer=model, minloglevel=2, **settings)
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    known = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [known.id_to_piece(number) for number in range(known.get_piece_size()) if not known.is_control(number)][1:]


def write_tokenizers(
    folder: Path, lacking: int = 0, apart: bool = False, same: bool = False, codes: bool = False
) -> tuple[int, int]:
    """Write the files of both tokenizers; the vocabularies lack `lacking` pieces. Return the vocabularies' sizes."""
    folder.mkdir(exist_ok=True)
    models = [trained(0), trained(0 if same else 1)]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    listed = [_listed(pieces_of(model), lacking) for model in models]
    if not apart:
        listed = [sorted({*listed[0], *listed[1]})] * 2
    sizes = []
    for name, pieces in zip(("vocab.json", "target_vocab.json") if apart else ("vocab.json",), listed, strict=False):
        names = ["</s>", "<unk>", CODE if codes else "<s>", *pieces, "<pad>"]
        (folder / name).write_text(json.dumps({piece: number for number, piece in enumerate(names)}))
        sizes.append(len(names))
    settings = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de", "separate_vocabs": apart}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return sizes[0], sizes[-1]


def _listed(pieces: list[str], lacking: int) -> list[str]:
    left_out = {*random.Random(3).sample([piece for piece in pieces if len(piece) > 1], lacking)}
    return [piece for piece in pieces if piece not in left_out]


@torch.no_grad()
def write_checkpoint(folder: Path, more: int = 0, **options: Any) -> Path:
    """Write a checkpoint with random weights and sharp distributions, and its tokenizers; `more` adds unused tokens."""
    sizes = write_tokenizers(folder, **options)
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        vocab_size=sizes[0] + more, decoder_vocab_size=sizes[1] + more, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=40, decoder_ffn_dim=40, encoder_attention_heads=4, decoder_attention_heads=4, scale_embedding=True,
        activation_function="swish", max_position_embeddings=64, pad_token_id=min(sizes) - 1, eos_token_id=0,
        decoder_start_token_id=min(sizes) - 1, forced_eos_token_id=None, share_encoder_decoder_embeddings=sizes[0] == sizes[1],
        tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.MarianMTModel(config)
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.05 if "norm.bias" in name else 0.7)
    model.final_logits_bias.normal_()
    model.final_logits_bias[:, [1, 2, *range(sizes[1], sizes[1] + more)]] = -50  # what no text of theirs would show alike
    model.generation_config.update(num_beams=3)
    model.save_pretrained(folder)
    return folder
