"""The words of the steps of one head's arithmetic: a title, a sentence and a formula for each step's name.

Pages look up other languages by the names, which therefore stay as they are. In formulas, i is the position that attends, j each
position that is attended to, d the width of a head, D that of the layers.
"""

from typing import NamedTuple


class StepWords(NamedTuple):
    """What people read about a step."""

    title: str
    says: str  # one sentence
    formula: str


INPUT = {
    "token": StepWords("The token becomes a vector", "Each token of the vocabulary has a learned vector.", "e = E[token]"),
    "scale_embedding": StepWords(
        "Scaled",
        "The vector is multiplied by the square root of its width, which makes it as large as the layers expect.",
        "x = e · √D",
    ),
    "segment": StepWords(
        "The segment is added", "A learned vector says which of the texts of a pair the token belongs to.", "x = e + S[segment]"
    ),
    "task": StepWords("The task is added", "A learned vector says which task the text belongs to.", "x = x + T[task]"),
    "position_added": StepWords(
        "The position is added",
        "A vector for the position is added; without it the model could not tell the order of the tokens.",
        "x = x + p[i]",
    ),
    "position_rotary": StepWords(
        "The position comes later",
        "Nothing about the position is added here: queries and keys will be rotated by angles that grow with it.",
        "x = x",
    ),
    "position_bias": StepWords(
        "The position comes later",
        "Nothing about the position is added here: the distance between two tokens will change their score.",
        "x = x",
    ),
    "position_none": StepWords(
        "No position", "This model is told nothing about the order of the tokens beyond which ones it may attend to.", "x = x"
    ),
    "position_recurrent": StepWords(
        "The position is in the reading",
        "A recurrent network reads one token after the other, so that its state knows the order.",
        "h[i] = cell(h[i−1], x[i])",
    ),
    "embedding_norm": StepWords(
        "The sum is normed",
        "Subtracting the mean and dividing by the deviation brings every token's vector to the same size.",
        "x = norm(x)",
    ),
    "embedding_projection": StepWords(
        "Projected", "A matrix brings the vector from the embeddings' width to that of the layers.", "x = W x + b"
    ),
    "layers_below": StepWords(
        "The layers below", "The layers before this one have changed the vector; this is what they pass on.", "x = layers(x)"
    ),
    "self_attention_before": StepWords(
        "Self-attention first",
        "The layer's self-attention has already mixed in the tokens that the decoder has read; this is the result.",
        "x = x + self-attention(x)",
    ),
    "norm_before": StepWords(
        "Norm before attention",
        "The vector is brought to a standard size before it is used; the vector itself stays for the residual.",
        "y = norm(x)",
    ),
}

ATTENTION = {
    "query": StepWords(
        "Query", "A learned matrix turns the vector into a query: what this token looks for.", "q = W_q input + b_q"
    ),
    "keys": StepWords(
        "Keys",
        "Another matrix turns each token's vector into a key: what the token offers to be found by.",
        "k_j = W_k input_j + b_k",
    ),
    "keys_source": StepWords(
        "Keys of the source",
        "The encoder has read the source; a matrix turns its vector for each source token into a key.",
        "k_j = W_k m_j + b_k",
    ),
    "values": StepWords(
        "Values",
        "A third matrix turns each token's vector into a value: what it hands over when it is attended to.",
        "v_j = W_v input_j + b_v",
    ),
    "values_source": StepWords(
        "Values of the source",
        "A third matrix turns the encoder's vectors into values: what each source token hands over.",
        "v_j = W_v m_j + b_v",
    ),
    "rotate": StepWords(
        "Positions rotate queries and keys",
        "Each pair of numbers is turned by an angle that grows with the position, so that a dot product depends on the distance.",
        "q = R(i) q,  k_j = R(j) k_j",
    ),
    "dot": StepWords(
        "Dot products", "The query is multiplied with each key: a large number means that the two fit together.", "s_j = q · k_j"
    ),
    "dot_content": StepWords(
        "Scores of the content",
        "The query and a learned vector u, the same for all tokens, are multiplied with each key.",
        "c_j = (q + u) · k_j",
    ),
    "dot_distance": StepWords(
        "Scores of the distance",
        "The query and a learned vector v are multiplied with a vector for the distance: here the positions enter.",
        "r_j = (q + v) · W_r R[i − j]",
    ),
    "dot_segment": StepWords(
        "Scores of the segment",
        "The query and a learned vector w are multiplied with one of two vectors: same segment, or another one.",
        "g_j = (q + w) · s[same or other]",
    ),
    "dot_sum": StepWords("The scores are added", "A score is the sum of the three.", "s_j = c_j + r_j + g_j"),
    "divide": StepWords(
        "Divided by √d",
        "Sums over many numbers grow with their count; dividing by the square root of it keeps the softmax from saturating.",
        "s_j = s_j / √d",
    ),
    "bias_distance": StepWords(
        "The distance is subtracted",
        "Far tokens lose: the distance times a slope that belongs to the head is subtracted. Here the positions enter.",
        "s_j = s_j − slope · |i − j|",
    ),
    "bias_bucket": StepWords(
        "A number for the distance is added",
        "A learned number for the head and the distance is added to each score. Here the positions enter.",
        "s_j = s_j + B[bucket(j − i), head]",
    ),
    "bias_relative": StepWords(
        "A vector for the distance is added to the keys",
        "The query also meets a learned vector for each distance, as if it were part of the key. Here the positions enter.",
        "s_j = s_j + q · a_k[j − i] / √d",
    ),
    "mask_none": StepWords("Mask", "Nothing is hidden here: the token may attend to all of these.", "s_j = s_j"),
    "mask_causal": StepWords(
        "Mask",
        "Tokens that come later are hidden: a model that writes must not see what it has yet to write.",
        "s_j = −∞ where j > i",
    ),
    "mask_pattern": StepWords(
        "Mask", "Some tokens are hidden from this one by the model's attention pattern.", "s_j = −∞ where hidden"
    ),
    "softmax": StepWords(
        "Softmax",
        "The exponentials of the scores, divided by their sum: positive weights that add up to 1.",
        "a_j = exp(s_j) / Σ exp(s_j)",
    ),
    "weighted_sum": StepWords(
        "Weighted sum of the values", "The head's result is the mean of the values, each with its weight.", "z = Σ a_j v_j"
    ),
    "weighted_relative": StepWords(
        "Vectors for distances join the values",
        "The weights also mix learned vectors for the distances, as if they were part of the values.",
        "z = z + Σ a_j a_v[j − i]",
    ),
    "heads_joined": StepWords(
        "The heads are joined",
        "All heads of the layer do the same with their own matrices; here are all results.",
        "z = [z_1, …, z_H]",
    ),
    "project": StepWords("Projected", "A matrix mixes the heads' results to one vector of the layer's width.", "o = W_o z + b_o"),
}

LAYER = {
    "residual": StepWords("Residual", "The result is added to what came in, so that nothing is lost.", "x = x + o"),
    "norm": StepWords(
        "Norm", "The sum is brought to a standard size: mean 0 and deviation 1, then learned scales.", "x = norm(x)"
    ),
    "cross_attention_after": StepWords(
        "Cross-attention next",
        "The layer then attends to the source in the same way (part cross); this is the result.",
        "x = x + cross-attention(x)",
    ),
    "norm_feedforward": StepWords("Norm before feed-forward", "The vector is brought to a standard size again.", "y = norm(x)"),
    "feedforward_inner": StepWords(
        "Feed-forward: the inner units",
        "A matrix and an activation turn the vector into many units, each of which looks for one pattern; some are active.",
        "u = activation(W_1 input + b_1)",
    ),
    "feedforward_gated": StepWords(
        "Feed-forward: the inner units",
        "Two matrices make units and gates; the gates decide how much of each unit passes.",
        "u = activation(W_1 input + b_1) · (W_2 input + b_2)",
    ),
    "feedforward": StepWords(
        "Feed-forward: the result", "A second matrix adds up what the active units contribute.", "f = W_3 u + b_3"
    ),
    "feedforward_residual": StepWords("Residual", "The result is added to what came in.", "x = x + f"),
    "feedforward_norm": StepWords("Norm", "The sum is brought to a standard size.", "x = norm(x)"),
}

OUTPUT = {
    "pass_on": StepWords("Passed on", "This vector is the input of the next layer.", "x[layer + 1] = x"),
    "final_norm": StepWords("The last norm", "After the last layer the vector is normed once more.", "x = norm(x)"),
    "pass_to_decoder": StepWords(
        "To the decoder", "The encoder is done: the decoder's cross-attention makes keys and values of this vector.", "m_i = x"
    ),
    "output": StepWords(
        "The output", "This is the model's vector for the token; whatever uses the model starts from it.", "h = x"
    ),
    "logits": StepWords(
        "Logits and probabilities",
        "The vector is multiplied with an output vector for each token of the vocabulary; a softmax makes probabilities.",
        "p = softmax(W x)",
    ),
    "logits_masked": StepWords(
        "Logits and probabilities",
        "A small network prepares the vector, which is multiplied with each token's vector; a softmax makes probabilities.",
        "p = softmax(E norm(activation(W x + b)) + c)",
    ),
}

RECURRENT = {
    "input_feeding": StepWords(
        "The last output is read, too",
        "Beside the token, the network reads its own last output, which knows where it attended.",
        "x = [x, o[i−1]]",
    ),
    "state": StepWords(
        "The state is the query", "The recurrent layers update their state; the state of the top layer is the query.", "q = h[i]"
    ),
    "query_additive": StepWords("Query", "A matrix turns the state into the query.", "q = W_q h[i]"),
    "keys_states": StepWords("Keys", "The encoder's states are the keys as they are.", "k_j = m_j"),
    "keys_projected": StepWords("Keys", "A matrix turns the encoder's states into keys.", "k_j = W m_j"),
    "values_states": StepWords("Values", "The encoder's states are the values as they are.", "v_j = m_j"),
    "score_additive": StepWords(
        "Additive scores",
        "Query and key are added and squashed, and a learned vector v weighs the result.",
        "s_j = v · tanh(q + k_j)",
    ),
    "score_dot": StepWords("Dot products", "The state is multiplied with each state of the encoder.", "s_j = q · m_j"),
    "score_general": StepWords(
        "General scores", "The state is multiplied with each projected state of the encoder.", "s_j = q · W m_j"
    ),
    "readout": StepWords(
        "State and context are joined",
        "A matrix and tanh turn the state and the weighted sum into the output vector.",
        "o = tanh(W [h, z])",
    ),
}

CONVOLUTION = {
    "convolution": StepWords(
        "Convolution over the last tokens",
        "A gated convolution mixes the token with the ones just before it.",
        "c = GLU(W [x[i−k+1], …, x[i]] + b)",
    ),
    "query_convolution": StepWords(
        "Query",
        "The result is projected, and the embedding of the token that was read last is added.",
        "q = (W_q c + b_q + e) · √½",
    ),
    "keys_convolution": StepWords("Keys", "The encoder's outputs are the keys.", "k_j = m_j"),
    "values_convolution": StepWords(
        "Values", "The encoder's outputs plus the embeddings of the tokens are the values.", "v_j = (m_j + e_j) · √½"
    ),
    "project_convolution": StepWords("Projected", "A matrix brings the sum to the layer's width.", "o = W z + b"),
    "sum_scaled": StepWords(
        "Scaled by the length", "A mean over many tokens is small; the square root of their number makes up for it.", "z = z · √S"
    ),
    "residual_convolution": StepWords(
        "Residual", "The result is added to the convolution's; the factor keeps the size.", "c = (c + o) · √½"
    ),
    "residual_layer": StepWords("Residual", "What came into the layer is added, too.", "x = (x + c) · √½"),
    "output_projection": StepWords("Projected", "A matrix brings the vector back to the embeddings' width.", "x = W x + b"),
}

WORDS = {**INPUT, **ATTENTION, **LAYER, **OUTPUT, **RECURRENT, **CONVOLUTION}
