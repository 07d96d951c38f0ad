"""Text in: reading and checking corpora, tokenizers, sentences, scores. No torch."""
