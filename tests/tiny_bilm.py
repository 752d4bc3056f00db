"""
Tiny biLMs of any shape with random weights, as files written by `save_weights`, and `Elmo` on them:
ours and AllenNLP's, the peer of most numeric tests.
"""

import json
from dataclasses import replace
from typing import NamedTuple

import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.files.weights import save_weights
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import batch_to_ids
from elmo_plugin.bilm.model.options import ElmoOptions
from elmo_plugin.bilm.pretraining.loader import BatchPair
from elmo_plugin.bilm.use.elmo import Elmo

# The clips are low, so that they are reached; the released files have 3.
OPTIONS = ElmoOptions(
    projection_dim=6,
    cell_size=10,
    num_layers=2,
    char_embedding_dim=4,
    filters=((1, 3), (2, 4), (4, 5)),
    num_highways=2,
    cell_clip=0.6,
    projection_clip=0.4,
)

# For models around it, which are slow enough.
SMALLEST = ElmoOptions(
    projection_dim=3,
    cell_size=5,
    num_layers=2,
    char_embedding_dim=4,
    filters=((1, 2), (2, 3)),
    num_highways=1,
)

# Lengths, rows and order differ; words come back, one is long, one is not ASCII.
BATCHES = [
    [["The", "cat", "sat"], ["Dogs", "bark", "at", "the", "moon", "."], ["Yes"]],
    [["A", "naïve", "Überraschung"], ["." * 60]],
    [["the", "cat"], ["The", "end", "of", "the", "day"], ["cat"], ["x", "y"], ["sat", "sat"]],
    [["One"]],
    [["a", "b", "c"], ["of", "the"], ["moon", "moon", "moon", "moon"], [","], ["Dogs"]],
]


def batch_pair(num_words=50):
    """Two streams of three tokens for pretraining, the same in both directions."""
    characters = batch_to_ids([["a", "b", "cat"], ["d", "sat", "x"]]).flatten(0, 1)
    tokens = torch.arange(6).view(2, 3).t().expand(2, 3, 2)
    targets = torch.randint(0, num_words, (3, 2)).expand(2, 3, 2)
    return BatchPair(characters, tokens, targets)


class Files(NamedTuple):
    """A biLM on disk."""

    options: str
    weights: str


def random_bilm(options=OPTIONS, seed=1, dtype=None, state="carry", **changes):
    """A biLM in which every parameter is random, biases too; forget biases around 1."""
    torch.manual_seed(seed)
    bilm = BiLm(replace(options, **changes), state, dtype)
    with torch.no_grad():
        for name, parameter in bilm.named_parameters():
            parameter.normal_(0.0, 0.3)
            if name.endswith("_char_embedding_weights"):
                parameter[0] = 0.0
            if name.endswith("state_linearity.bias"):
                parameter[bilm.options.cell_size : 2 * bilm.options.cell_size] += 1.0
    return bilm


def word_ids(batch, vocabulary):
    """Ids of a batch's words, padded by 0."""
    rows = [torch.tensor([vocabulary.index(word) for word in sentence]) for sentence in batch]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def cached_names(module):
    """Name and settings of each value that is derived from a module's parameters."""
    records = [vars(one).get("_derived_record") for one in module.parameters()]
    return [what for record in records if record is not None for what in record.entries]


def replica_of(bilm):
    """As `torch.nn.parallel.replicate` makes it: weights are no parameters there."""
    replicas = {module: module._replicate_for_data_parallel() for module in bilm.modules()}
    for module, replica in replicas.items():
        for name, child in module.named_children():
            replica._modules[name] = replicas[child]
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.detach())
    assert not list(replicas[bilm].parameters())
    return replicas[bilm]


def write(folder, bilm=None, **options_json):
    """Writes a biLM's two files; `options_json` replaces values, such as `n_characters=261`."""
    bilm = bilm or random_bilm()
    options = options_dict(bilm.options)
    for part in options.values():
        part.update({key: value for key, value in options_json.items() if key in part})
    files = Files(str(folder / "options.json"), str(folder / "weights.hdf5"))
    (folder / "options.json").write_text(json.dumps(options))
    save_weights(bilm, files.weights)
    return files


def elmo_pair(files, num_output_representations=1, **arguments):
    """Our `Elmo` and AllenNLP's on the same files, without dropout."""
    from allennlp.modules.elmo import Elmo as StockElmo

    pair = []
    for kind in (Elmo, StockElmo):
        elmo = kind(*files, num_output_representations, dropout=0.0, **arguments)
        pair.append(elmo)
    ours, theirs = pair
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    return ours, theirs


def assert_same_output(ours, theirs):
    """What both gave, at the tolerance of the stored outputs."""
    assert ours["mask"].dtype == torch.bool
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
