"""From a model to text: greedy, beam search, sampling, scores of given text. Receives a model, never imports one."""
