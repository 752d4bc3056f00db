"""The biLM as a language model: how likely is a sentence, and what else might stand here?"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from elmo_plugin.bilm.extraction.batches import Sentence, batches, windows
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.text import quoted
from elmo_plugin.bilm.kernels.backend import backend
from elmo_plugin.bilm.kernels.chooser import linear
from elmo_plugin.bilm.model.bilm import BiLm, with_boundaries
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE
from elmo_plugin.bilm.training.export import (
    OPTIONS_FILE,
    SOFTMAX_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    load_softmax,
)
from elmo_plugin.bilm.training.softmax import WordSoftmax
from elmo_plugin.bilm.training.vocabulary import SPECIAL_WORDS, WordVocabulary
from elmo_plugin.bilm.use.sentence_scores import SentenceScores, Substitute

# Rows and words of the logits at hand.
ROWS_AT_ONCE, WORDS_AT_ONCE = 256, 2048


class LanguageScorer:
    """
    Scores sentences with a biLM and the softmax it was trained with.

    # Parameters

    bilm : `BiLm`
        Its `state` says where a sentence's LSTM state starts. `"primed"` and `"reset"`: each
        sentence by itself. `"carry"`: the sentences are one text, the state runs on from each to
        the next; over a held-out text this is the perplexity that pretraining reports.
    softmax : `WordSoftmax`
        Over the vocabulary.
    vocabulary : `WordVocabulary`

    # Raises

    `ValueError`
        If the three do not fit together.
    """

    def __init__(self, bilm: BiLm, softmax: WordSoftmax, vocabulary: WordVocabulary) -> None:
        expected = (len(vocabulary), bilm.options.projection_dim)
        if softmax.weight.shape != expected:
            raise ValueError(
                f"the softmax has shape {tuple(softmax.weight.shape)}, expected {expected}: the "
                "words of the vocabulary, and the biLM's projection_dim"
            )
        self.bilm = bilm.eval()
        self.vocabulary = vocabulary
        self._weight = softmax.weight.detach()
        self._bias = softmax.bias.detach().squeeze(-1)
        ids = vocabulary.ids
        self._begin, self._end = ids[BEGIN_OF_SENTENCE], ids[END_OF_SENTENCE]
        self._no_substitutes = [ids[word] for word in SPECIAL_WORDS]

    @classmethod
    def from_directory(
        cls,
        directory: str | Path,
        state: str = "primed",
        cuda_device: int = -1,
        vocabulary_file: str | Path | None = None,
    ) -> "LanguageScorer":
        """
        From what a finished pretraining or fine-tuning run, `export-bilm` or `convert-checkpoint`
        wrote.

        # Parameters

        directory : `str | Path`
            With `options.json`, `weights.hdf5`, `softmax.hdf5` and `vocabulary.txt`.
        state : `str`, optional (default = `"primed"`)
            See `LanguageScorer`.
        cuda_device : `int`, optional (default = `-1`)
            The GPU's number; negative for the CPU.
        vocabulary_file : `str | Path | None`, optional (default = `None`)
            The words of the softmax, where they are elsewhere.

        # Raises

        `FileNotFoundError`, `ValueError`
            If a file is not there, or not what it should be.
        """
        directory = Path(directory)
        names = [OPTIONS_FILE, WEIGHTS_FILE, SOFTMAX_FILE]
        paths = [directory / name for name in names]
        if vocabulary_file is None:
            paths.append(directory / VOCABULARY_FILE)
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise FileNotFoundError(
                f"{directory} has no {' and no '.join(missing)}, expected the folder of a finished "
                "pretraining run, or what export-bilm or convert-checkpoint --vocabulary wrote"
            )
        vocabulary = WordVocabulary.from_file(vocabulary_file or paths[-1])
        bilm = load_bilm(paths[0], paths[1], state=state)
        softmax = WordSoftmax(len(vocabulary), bilm.options.projection_dim)
        load_softmax(softmax, paths[2])
        if cuda_device >= 0:
            bilm, softmax = bilm.cuda(cuda_device), softmax.cuda(cuda_device)
        return cls(bilm, softmax, vocabulary)

    def score(
        self, sentences: Iterable[Sequence[str]], max_tokens: int = 4096
    ) -> Iterator[SentenceScores]:
        """
        # Parameters

        sentences : `Iterable[Sequence[str]]`
            Tokenized; read as they are needed.
        max_tokens : `int`, optional (default = `4096`)
            Positions run together at most.

        # Returns

        `Iterator[SentenceScores]`
            In order.

        # Raises

        `ValueError`
            If a sentence is a string, whose letters would be its tokens.
        """
        carries = self.bilm.state == "carry"
        given = (Sentence("", _tokens(sentence)) for sentence in sentences)
        for window in windows(given, max_tokens):
            tokens = [sentence.tokens for sentence in window]
            num_steps = [sentence.num_steps for sentence in window]
            scores: dict[int, SentenceScores] = {}
            for batch in (
                ([index] for index in range(len(tokens)))
                if carries
                else batches(num_steps, max_tokens)
            ):
                scores.update(zip(batch, self._score([tokens[index] for index in batch])))
            yield from (scores[index] for index in range(len(tokens)))

    def substitutes(self, sentence: Sequence[str], position: int, k: int = 10) -> list[Substitute]:
        """
        What might stand in a token's place, by what is before and behind it; the token itself is
        not read, and not among them.

        # Parameters

        sentence : `Sequence[str]`
            Tokenized.
        position : `int`
            The token's place in it, from 0.
        k : `int`, optional (default = `10`)
            How many.

        # Returns

        `list[Substitute]`
            The most probable first.

        # Raises

        `ValueError`
            If there is no such token, or `k` is not positive.
        """
        tokens = _tokens(sentence)
        if not 0 <= position < len(tokens):
            raise ValueError(f"position is {position}, expected 0 to {len(tokens) - 1}")
        return self._substitutes(tokens, range(position, position + 1), k)[0]

    def all_substitutes(self, sentence: Sequence[str], k: int = 10) -> list[list[Substitute]]:
        """`substitutes` of every token, with one run of the biLM."""
        tokens = _tokens(sentence)
        return self._substitutes(tokens, range(len(tokens)), k)

    @torch.no_grad()
    def _substitutes(self, tokens: list[str], places: range, k: int) -> list[list[Substitute]]:
        if k < 1:
            raise ValueError(f"k is {k}, expected 1 or more")
        forward, backward, _ = self._contexts([tokens])
        found = []
        for place in places:
            rows = torch.stack([forward[0, place], backward[0, place + 1]])
            both = torch.log_softmax(linear(rows, self._weight, self._bias), dim=1)
            product = torch.log_softmax(both.sum(dim=0), dim=0)
            allowed = product.clone()
            allowed[[*self._no_substitutes, self.vocabulary.id(tokens[place])]] = -math.inf
            best = allowed.topk(min(k, len(self.vocabulary))).indices
            best = best[allowed[best] > -math.inf]
            words = [self.vocabulary.words[index] for index in best.tolist()]
            figures = torch.stack([product, *both])[:, best].t().tolist()
            found.append([Substitute(word, *three) for word, three in zip(words, figures)])
        return found

    @torch.no_grad()
    def _score(self, sentences: list[list[str]]) -> list[SentenceScores]:
        forward, backward, mask = self._contexts(sentences)
        width = mask.shape[1]
        targets = torch.full((len(sentences), width + 1), self._end, device=mask.device)
        for row, tokens in enumerate(sentences):
            known = [self._begin, *(self.vocabulary.id(token) for token in tokens), self._end]
            targets[row, : len(known)] = torch.tensor(known)
        both = []
        for outputs, ids in ((forward, targets[:, 1:]), (backward, targets[:, :-1])):
            padded = torch.zeros(mask.shape, dtype=outputs.dtype, device=mask.device)
            padded[mask] = self._log_probabilities(outputs[mask], ids[mask])
            both.append(padded.tolist())
        scores = []
        for tokens, ahead, back in zip(sentences, *both):
            size = len(tokens)
            unknown = [token not in self.vocabulary.ids for token in tokens]
            scores.append(
                SentenceScores(
                    tokens, ahead[:size], back[1 : size + 1], ahead[size], back[0], unknown
                )
            )
        return scores

    def _contexts(
        self, sentences: list[list[str]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        The top layer where each direction predicts: forward from `<S>` to the last token, which
        predict what follows, backward from the first to `</S>`, which predict what goes before.
        Shape `(batch_size, num_tokens + 1, projection_dim)`, and the mask of both. A text's streams
        in pretraining are the same: they never read the boundary at which a direction arrives.
        """
        bilm, options = self.bilm, self.bilm.options
        inputs = bilm.batch_to_ids(sentences).to(bilm.device)
        lengths = torch.tensor([len(one) + 2 for one in sentences], device=bilm.device)
        begin, end = bilm.batch_to_ids([bilm.char_cnn.boundaries])[0].to(bilm.device)
        ids = with_boundaries(inputs, lengths, begin, end)
        steps = torch.arange(ids.shape[1], device=bilm.device)
        mask = steps < lengths.unsqueeze(1)
        tokens = bilm.char_cnn.char_embedding.new_zeros(*mask.shape, options.projection_dim)
        backend().tokens_over_padded(bilm.char_cnn, ids, mask, tokens, bilm.parameters())
        tops, ends = [], []
        for direction, part, start in zip(
            ("forward", "backward"),
            (tokens[:, :-1], tokens[:, 1:]),
            bilm.start_states(len(sentences)),
        ):
            layers = [torch.zeros_like(part) for _ in range(options.num_layers)]
            final = backend().over_padded(
                partial(bilm.lstm.stack, direction),
                part,
                lengths - 1,
                start,
                layers,
                bilm.lstm.parameters(),
                reverse=direction == "backward",
            )
            tops.append(layers[-1])
            ends.append(final)
        bilm.keep_states(*ends)
        return tops[0], tops[1], mask[:, 1:]

    def _log_probabilities(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of each row's target, a block of the logits at a time."""
        found = []
        for rows, ids in zip(outputs.split(ROWS_AT_ONCE), targets.split(ROWS_AT_ONCE)):
            sums = [
                torch.logsumexp(linear(rows, words, bias), dim=1)
                for words, bias in zip(
                    self._weight.split(WORDS_AT_ONCE), self._bias.split(WORDS_AT_ONCE)
                )
            ]
            logits = (rows * self._weight[ids]).sum(dim=1) + self._bias[ids]
            found.append(logits - torch.logsumexp(torch.stack(sums), dim=0))
        return torch.cat(found) if found else outputs.new_zeros(0)


def _tokens(sentence: Sequence[str]) -> list[str]:
    if isinstance(sentence, str):
        raise ValueError(
            f"found the string {quoted(sentence)} for a sentence, expected its tokens: "
            f"{sentence.split()[:8]}"
        )
    return list(sentence)
