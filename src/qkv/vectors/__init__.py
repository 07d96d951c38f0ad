"""Word vectors: training, lookup, evaluation, plots, and the file formats of word2vec, GloVe and fastText."""
