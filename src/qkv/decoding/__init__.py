"""Decoding: greedy search, beam search, sampling, and scores of given texts. It receives a model and never imports one."""
