"""Small `bidaf_self_attention` models with random weights, and questions for them."""

import copy

import torch
from allennlp.common import Params
from allennlp.data import Vocabulary
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from elmo_plugin.data.indexer import ElmoTokenCharactersIndexer
from elmo_plugin.data.readers.squad import SquadReader
from elmo_plugin.models.bidaf_self_attention import BidafSelfAttention
from tests.models.tasks import WORD_DIM, embedder, lstm

DIM = 6  # of every biGRU's output

# Question, passage, marked answers.
QUESTIONS = [
    ("Who built the old mill ?", "A farmer built the old mill by the river .", ["A farmer"]),
    (
        "Where does the ferry stop ?",
        "In summer the small ferry stops at the island twice a day , and in winter , when the "
        "lake freezes , it stays in the harbour until the ice has gone .",
        ["at the island", "the island", "at the island", "in the harbour"],
    ),
    ("What rang ?", "Bells .", ["Bells"]),
    ("When ?", "The shop opens at nine .", ["nine", "at nine"]),
]


def gru(input_size):
    return {**lstm(input_size), "type": "gru", "hidden_size": DIM // 2}


def squad(elmo=None, elmo_dim=0, at_input=False, at_output=False, **arguments):
    params = {
        "text_field_embedder": embedder(),
        "phrase_layer": gru(WORD_DIM + at_input * elmo_dim),
        "residual_encoder": gru(DIM),
        "span_start_encoder": gru(DIM),
        "span_end_encoder": gru(2 * DIM),
        **arguments,
    }
    if elmo is not None:
        params |= {"elmo": elmo, "use_input_elmo": at_input, "use_output_elmo": at_output}
    return params


def reader(elmo=False, **arguments):
    indexers = {"tokens": SingleIdTokenIndexer()}
    if elmo:
        indexers["elmo"] = ElmoTokenCharactersIndexer()
    return SquadReader(WhitespaceTokenizerWithOffsets(), indexers, **arguments)


class WhitespaceTokenizerWithOffsets(WhitespaceTokenizer):
    """`WhitespaceTokenizer` gives no `idx`."""

    def tokenize(self, text):
        tokens, start = super().tokenize(text), 0
        for token in tokens:
            token.idx = text.index(token.text, start)
            start = token.idx + len(token.text)
        return tokens


def instances(questions=QUESTIONS, elmo=False, **arguments):
    made, used = [], reader(elmo, **arguments)
    for text, passage, answers in questions:
        starts = [passage.index(answer) for answer in answers]
        spans = [(start, start + len(answer)) for start, answer in zip(starts, answers)]
        made.append(used.text_to_instance(text, passage, None, spans, answers))
        used.apply_token_indexers(made[-1])
    return made


def build(params, elmo=False, dtype=torch.float64, seed=1):
    """The model in evaluation mode with random weights, those of the biLM as they are."""
    vocab = Vocabulary.from_instances(instances(elmo=elmo))
    model = BidafSelfAttention.from_params(Params(copy.deepcopy(params)), vocab=vocab)
    torch.manual_seed(seed)
    for _, parameter in sorted(model.named_parameters()):
        if parameter.requires_grad:
            parameter.data.normal_(0.0, 0.7)
    return model.to(dtype).eval()
