"""Linear probe on frozen vectors, with or without a CRF."""

from collections.abc import Sequence

import numpy
import torch
from allennlp.data import Vocabulary
from allennlp.modules import ConditionalRandomField
from torch.nn.utils.rnn import pad_sequence

from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.metrics.conlleval import Conlleval

NAMESPACE = "labels"


class Probe(torch.nn.Module):
    """Tagger made of a scalar mix of layers, a linear layer and, with `crf`, a CRF."""

    def __init__(self, num_layers: int, dim: int, num_tags: int, crf: bool) -> None:
        super().__init__()
        self.mix = ScalarMix(num_layers)
        self.linear = torch.nn.Linear(dim, num_tags)
        self.crf = ConditionalRandomField(num_tags) if crf else None
        self._dropout = torch.nn.Dropout(0.2)

    def _scores(self, layers: torch.Tensor) -> torch.Tensor:
        return self.linear(self._dropout(self.mix(list(layers.unbind(1)))))

    def loss(self, layers: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the mean loss per token."""
        scores = self._scores(layers)
        if self.crf is not None:
            return -self.crf(scores, tags, mask) / mask.sum()
        return torch.nn.functional.cross_entropy(scores[mask], tags[mask])

    def tags(self, layers: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
        """Return the predicted tags of each sentence."""
        scores = self._scores(layers)
        if self.crf is not None:
            return [tags for tags, _ in self.crf.viterbi_tags(scores, mask)]
        return [row[keep].argmax(dim=-1).tolist() for row, keep in zip(scores, mask, strict=True)]


def train_and_score(
    train: tuple[list[torch.Tensor], list[list[int]]],
    dev: tuple[list[torch.Tensor], list[list[int]]],
    vocab: Vocabulary,
    spans: bool,
    epochs: int,
    seed: int,
) -> float:
    """
    Train a `Probe`, and return its score on dev after the last epoch, in per cent: with `spans`,
    whose tags are BIOUL, the F1 of a CRF; otherwise the accuracy.

    `train` and `dev` have each sentence's layers, shape `(num_layers, num_tokens, dim)`, and tags.
    """
    torch.manual_seed(seed)
    order = numpy.random.default_rng(seed)
    mean, deviation = _scale(train[0])
    num_layers, _, dim = train[0][0].shape
    lengths = numpy.array([len(tags) for tags in train[1]])
    probe = Probe(num_layers, dim, vocab.get_vocab_size(NAMESPACE), crf=spans)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.003)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = 0.003 * (1 - epoch / epochs)
        # Batch sentences of similar length, in new combinations each epoch.
        by_length = numpy.argsort(lengths + order.uniform(0, 4, len(lengths)))
        batches = numpy.array_split(by_length, len(lengths) // 32)
        for index in order.permutation(len(batches)):
            rows = batches[index]
            layers, tags, mask = _batch(train, rows.tolist(), mean, deviation)
            optimizer.zero_grad()
            probe.loss(layers, tags, mask).backward()
            optimizer.step()
    probe.eval()
    metric = Conlleval(vocab, NAMESPACE, label_encoding="BIOUL") if spans else None
    right = total = 0
    with torch.inference_mode():
        for start in range(0, len(dev[0]), 64):
            rows = range(start, min(start + 64, len(dev[0])))
            layers, tags, mask = _batch(dev, rows, mean, deviation)
            found = pad_sequence(
                [torch.tensor(row) for row in probe.tags(layers, mask)], batch_first=True
            )
            if metric is not None:
                metric(torch.eye(vocab.get_vocab_size(NAMESPACE))[found], tags, mask)
            right += int(((found == tags) & mask).sum())
            total += int(mask.sum())
    return 100 * (metric.get_metric()["f1-measure-overall"] if metric else right / total)


def _scale(layers: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and standard deviation of each dimension of each layer over the tokens."""
    rows = torch.cat([one.float() for one in layers[:2000]], dim=1)
    return rows.mean(dim=1, keepdim=True), rows.std(dim=1, keepdim=True).clamp(min=1e-4)


def _batch(
    data: tuple[list[torch.Tensor], list[list[int]]],
    rows: Sequence[int],
    mean: torch.Tensor,
    deviation: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scaled = [((data[0][row].float() - mean) / deviation).transpose(0, 1) for row in rows]
    tags = [torch.tensor(data[1][row]) for row in rows]
    mask = pad_sequence([torch.ones(len(one), dtype=torch.bool) for one in tags], batch_first=True)
    layers = pad_sequence(scaled, batch_first=True).transpose(1, 2)
    return layers, pad_sequence(tags, batch_first=True), mask
