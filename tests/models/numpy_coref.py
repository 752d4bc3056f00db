"""
Lee et al. 2017 in plain numpy, float64, pair by pair and token by token, without dropout: what
e2e-coref (53c4116) computes for one document. For comparison, not for speed.
"""

import math

import numpy as np

DISTANCE_BINS = (0, 1, 2, 3, 4, 5, 8, 16, 32, 64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def coupled_lstm(inputs, weights, prefix):
    """One direction over one sentence, in the order of `inputs`."""
    of_input = weights[f"{prefix}.input_linearity.weight"]
    bias = weights[f"{prefix}.input_linearity.bias"]
    of_state = weights[f"{prefix}.state_linearity.weight"]
    state, cell = (weights[f"{prefix}.initial_{what}"][0] for what in ("state", "cell"))
    outputs = []
    for x in inputs:
        i, j, o = np.split(of_input @ x + bias + of_state @ state, 3)
        i = sigmoid(i)
        cell = (1 - i) * cell + i * np.tanh(j)
        state = sigmoid(o) * np.tanh(cell)
        outputs.append(state)
    return np.array(outputs)


def feedforward(x, weights, name):
    for layer in range(2):
        linear = f"_{name}_feedforward._module._linear_layers.{layer}"
        x = np.maximum(0, weights[f"{linear}.weight"] @ x + weights[f"{linear}.bias"])
    scorer = f"_{name}_scorer._module"
    return (weights[f"{scorer}.weight"] @ x + weights[f"{scorer}.bias"])[0]


def crosses(one, other):
    return one[0] < other[0] <= one[1] < other[1] or other[0] < one[0] <= other[1] < one[1]


def log_sum_exp(values):
    most = max(values)
    return most + math.log(sum(math.exp(value - most) for value in values))


def run(weights, sentences, extra, speakers, genre, clusters, settings):
    """
    `sentences`: for each an array of embedded tokens; `extra`: what the LSTM reads beside them, or
    None. `settings`: `max_span_width`, `spans_per_word`, `max_antecedents`, `genres`.

    Gives the kept spans, for each its scores (none, then the nearest antecedent first), and the
    loss.
    """
    context, spans, offset = [], [], 0
    for index, words in enumerate(sentences):
        inputs = words if extra is None else np.concatenate([words, extra[index]], axis=1)
        forward = coupled_lstm(inputs, weights, "_context_layer.forward_direction")
        backward = coupled_lstm(inputs[::-1], weights, "_context_layer.backward_direction")[::-1]
        context.append(np.concatenate([forward, backward], axis=1))
        for start in range(len(words)):
            for end in range(start, min(len(words), start + settings["max_span_width"])):
                spans.append((offset + start, offset + end))
        offset += len(words)
    context, words = np.concatenate(context), np.concatenate(sentences)

    widths = weights["_endpoint_span_extractor._span_width_embedding.weight"]
    attention = "_attentive_span_extractor._global_attention._module"
    head_scores = context @ weights[f"{attention}.weight"][0] + weights[f"{attention}.bias"]
    vectors = {}
    for start, end in spans:
        inside = slice(start, end + 1)
        shares = np.exp(head_scores[inside] - head_scores[inside].max())
        head = (shares / shares.sum()) @ words[inside]
        vectors[start, end] = np.concatenate(
            [context[start], context[end], widths[end - start], head]
        )
    mention_scores = {span: feedforward(vectors[span], weights, "mention") for span in spans}

    kept = []
    for span in sorted(spans, key=lambda span: -mention_scores[span]):
        if len(kept) == math.floor(settings["spans_per_word"] * len(words)):
            break
        if not any(crosses(span, other) for other in kept):
            kept.append(span)
    kept.sort()

    cluster_of = {mention: n for n, cluster in enumerate(clusters) for mention in cluster}
    scores, loss = [], 0.0
    for i, span in enumerate(kept):
        row, right = [0.0], []
        for j in range(i - 1, max(-1, i - 1 - settings["max_antecedents"]), -1):
            other = kept[j]
            bin_ = max(n for n, least in enumerate(DISTANCE_BINS) if i - j >= least)
            phi = [
                weights["_distance_embedding.weight"][bin_],
                weights["_speaker_embedding.weight"][int(speakers[span[0]] == speakers[other[0]])],
                weights["_genre_embedding.weight"][settings["genres"].index(genre)],
            ]
            g_i, g_j = vectors[span], vectors[other]
            pair = feedforward(np.concatenate([g_i, g_j, g_i * g_j, *phi]), weights, "antecedent")
            row.append(mention_scores[span] + mention_scores[other] + pair)
            if span in cluster_of and cluster_of[span] == cluster_of.get(other):
                right.append(row[-1])
        scores.append(row)
        loss += log_sum_exp(row) - log_sum_exp(right or [0.0])
    return kept, scores, loss
