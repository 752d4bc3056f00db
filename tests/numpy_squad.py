"""
The model of Clark and Gardner 2018 in plain numpy, one question at a time: loops over words, the
concatenated vectors of all pairs, no masks and no padding. Steps 3 to 10 of document-qa's ELMo run,
without dropout.
"""

import numpy


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def softmax(x):
    exponentials = numpy.exp(x - x.max())
    return exponentials / exponentials.sum()


def relu(x):
    return numpy.maximum(x, 0)


class Reference:
    """`weights`: the PyTorch model's, by name, as numpy arrays."""

    def __init__(self, weights):
        self.weights = weights

    def gru_direction(self, name, suffix, inputs):
        """cuDNN's: the reset gate comes after the product of the state."""
        w_input, w_state, b_input, b_state = (
            self.weights[f"{name}._module.{part}_l0{suffix}"]
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        state = numpy.zeros(w_state.shape[1], dtype=inputs.dtype)
        outputs = []
        for vector in inputs:
            from_input = numpy.split(w_input @ vector + b_input, 3)
            from_state = numpy.split(w_state @ state + b_state, 3)
            reset = sigmoid(from_input[0] + from_state[0])
            update = sigmoid(from_input[1] + from_state[1])
            new = numpy.tanh(from_input[2] + reset * from_state[2])
            state = (1 - update) * new + update * state
            outputs.append(state)
        return numpy.stack(outputs)

    def gru(self, name, inputs):
        forward = self.gru_direction(name, "", inputs)
        backward = self.gru_direction(name, "_reverse", inputs[::-1])[::-1]
        return numpy.concatenate([forward, backward], axis=1)

    def linear(self, name, inputs):
        return inputs @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def similarities(self, name, first, second):
        weight = self.weights[f"{name}._weight_vector"]
        bias = self.weights[f"{name}._bias"][0]
        return numpy.array(
            [[weight @ numpy.concatenate([x, y, x * y]) + bias for y in second] for x in first]
        )

    def bi_attention(self, passage, question):
        similarities = self.similarities("_attention.similarity", passage, question)
        beta = softmax(similarities.max(axis=1))
        summary = sum(b * p for b, p in zip(beta, passage, strict=True))
        rows = []
        for p, row in zip(passage, similarities, strict=True):
            attended = sum(a * q for a, q in zip(softmax(row), question, strict=True))
            rows.append(numpy.concatenate([p, attended, p * attended, p * summary]))
        return numpy.stack(rows)

    def self_attention(self, x):
        h = self.gru("_self_attention.encoder", x)
        similarities = self.similarities("_self_attention.similarity", h, h)
        nothing = numpy.exp(self.weights["_self_attention.nothing"][0])
        rows = []
        for i, h_i in enumerate(h):
            scores = {j: numpy.exp(similarities[i, j]) for j in range(len(h)) if j != i}
            total = sum(scores.values()) + nothing
            attended = sum((s / total * h[j] for j, s in scores.items()), numpy.zeros_like(h_i))
            rows.append(numpy.concatenate([attended, h_i, attended * h_i]))
        return x + relu(self.linear("_self_attention.merge", numpy.stack(rows)))

    def logits(self, passage, question, passage_elmo=None, question_elmo=None):
        """From what goes into the shared GRU, and the ELMo vectors behind it."""
        encoded_passage = self.gru("_phrase_layer", passage)
        encoded_question = self.gru("_phrase_layer", question)
        if passage_elmo is not None:
            encoded_passage = numpy.concatenate([encoded_passage, passage_elmo], axis=1)
            encoded_question = numpy.concatenate([encoded_question, question_elmo], axis=1)
        attended = self.bi_attention(encoded_passage, encoded_question)
        x = self.self_attention(relu(self.linear("_merge_attention", attended)))
        start = self.gru("_span_start_encoder", x)
        end = self.gru("_span_end_encoder", numpy.concatenate([x, start], axis=1))
        return (
            self.linear("_span_start_predictor", start)[:, 0],
            self.linear("_span_end_predictor", end)[:, 0],
        )


def loss(start_logits, end_logits, answers):
    """Of one question: all marked starts and all marked ends."""
    starts, ends = ({span[k] for span in answers} for k in (0, 1))
    return -numpy.log(sum(softmax(start_logits)[i] for i in starts)) - numpy.log(
        sum(softmax(end_logits)[i] for i in ends)
    )


def best_span(start_logits, end_logits, bound):
    spans = [
        (start_logits[i] + end_logits[j], (i, j))
        for i in range(len(start_logits))
        for j in range(i, len(start_logits))
        if j - i < bound
    ]
    return max(spans)[1]
