"""The biLM as a language model: probabilities of sentences, and substitutes for words."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from elmo_plugin.bilm.extraction.batches import WINDOW_BATCHES, Sentence, batches, windows
from elmo_plugin.bilm.files.folders import MODEL, is_folder, unpacked
from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.files.names import NAMED_BILMS
from elmo_plugin.bilm.kernels.backend import check_no_hooks
from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.model.characters import BEGIN_OF_SENTENCE, END_OF_SENTENCE
from elmo_plugin.bilm.model.lstm import BiLstm
from elmo_plugin.bilm.model.tokens import check_batch, tokenized_sentence
from elmo_plugin.bilm.pretraining.export import SOFTMAX_FILE, VOCABULARY_FILE
from elmo_plugin.bilm.pretraining.softmax import WordSoftmax, full_cross_entropy, load_softmax
from elmo_plugin.bilm.pretraining.vocabulary import SPECIAL_WORDS, WordVocabulary


class SentenceScores(NamedTuple):
    """
    Log-probabilities of a sentence under a biLM, in natural logarithms.

    `forward`, `backward`: log-probability of each of `tokens`, given the tokens before or after it.
    `end`: forward log-probability of `</S>`. `begin`: backward log-probability of `<S>`. `unknown`:
    `True` for tokens outside the vocabulary, which are scored as `<UNK>`.
    """

    tokens: list[str]
    forward: list[float]
    backward: list[float]
    end: float
    begin: float
    unknown: list[bool]

    @property
    def forward_log_probability(self) -> float:
        """Sum of the forward log-probabilities of all tokens and of the sentence end."""
        return math.fsum(self.forward) + self.end

    @property
    def backward_log_probability(self) -> float:
        """Sum of the backward log-probabilities of all tokens and of the sentence start."""
        return math.fsum(self.backward) + self.begin

    @property
    def log_probability(self) -> float:
        """Mean of the forward and the backward log-probability of the sentence."""
        return (self.forward_log_probability + self.backward_log_probability) / 2

    @property
    def num_predictions(self) -> int:
        """Number of predictions in each direction: one for each token, and one for the boundary."""
        return len(self.tokens) + 1

    @property
    def perplexity(self) -> float:
        """
        Perplexity per word: geometric mean of the forward and the backward perplexity, as in
        bilm-tf.
        """
        return math.exp(-self.log_probability / self.num_predictions)


class Substitute(NamedTuple):
    """
    Word that a biLM predicts at a position in a sentence, with its log-probabilities.

    `forward`: log-probability given only the words before the position. `backward`: given only the
    words after it. `log_probability`: given both, from the normalised product of the two
    distributions.
    """

    word: str
    log_probability: float
    forward: float
    backward: float


class LanguageScorer:
    """
    Language model that scores sentences with a biLM and the softmax it was trained with.

    Words outside the vocabulary are scored as `<UNK>`; `SentenceScores.unknown` marks them.

    # Parameters

    bilm : `BiLm | str | Path`
        A biLM; or `"embedded"`, a folder or a ZIP file, from which `from_directory` loads biLM,
        softmax and vocabulary. The biLM's `state` determines the initial LSTM state of each
        sentence. With `"primed"` and `"reset"`, sentences are scored independently. With
        `"carry"`, each sentence continues from the sentence before it, as in the held-out
        evaluation of pretraining.
    softmax : `WordSoftmax | None`, optional (default = `None`)
        Softmax that the biLM was trained with; required with a `BiLm`, not allowed with a folder.
    vocabulary : `WordVocabulary | None`, optional (default = `None`)
        Words of the softmax; required with a `BiLm`, not allowed with a folder.

    # Raises

    `FileNotFoundError`
        If the folder lacks a file.
    `ValueError`
        If the sizes of biLM, softmax and vocabulary do not match, or one of them is missing.
    """

    def __init__(
        self,
        bilm: BiLm | str | Path,
        softmax: WordSoftmax | None = None,
        vocabulary: WordVocabulary | None = None,
    ) -> None:
        if not isinstance(bilm, BiLm):
            if softmax is not None or vocabulary is not None:
                raise ValueError(
                    f"the folder {bilm} was given with a softmax or a vocabulary, expected the "
                    "folder alone"
                )
            bilm, softmax, vocabulary = load_with_softmax(bilm)
        if softmax is None or vocabulary is None:
            raise ValueError("a biLM was given alone, expected its softmax and vocabulary too")
        expected = (len(vocabulary), bilm.options.projection_dim)
        if softmax.weight.shape != expected:
            raise ValueError(
                f"the softmax has shape {tuple(softmax.weight.shape)}, expected {expected}: the "
                "words of the vocabulary, and the biLM's projection_dim"
            )
        self.bilm = bilm.eval()
        self.vocabulary = vocabulary
        self._weight = softmax.weight.detach()
        self._bias = softmax.bias.detach()
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
        Load a biLM with its softmax and vocabulary; see `LanguageScorer` and `ElmoEmbedder`.

        `directory` is `"embedded"`, or a folder or ZIP file with a biLM's files (see `Elmo`),
        `softmax.hdf5` and `vocabulary.txt`: a finished pretraining run, or the output of
        `export-bilm` or `convert-checkpoint`. `vocabulary_file` has the words of the softmax, if
        `directory` has no `vocabulary.txt`. A missing or damaged file is an error.
        """
        bilm, softmax, vocabulary = load_with_softmax(directory, state, vocabulary_file)
        if cuda_device >= 0:
            bilm, softmax = bilm.cuda(cuda_device), softmax.cuda(cuda_device)
        return cls(bilm, softmax, vocabulary)

    def score(
        self, sentences: Iterable[Sequence[str]], max_tokens: int = 4096
    ) -> Iterator[SentenceScores]:
        """
        Yield the log-probabilities of each sentence, in input order.

        Sentences are lists of tokens, read lazily; a string raises a `ValueError`. A batch has at
        most `max_tokens` tokens, with padding and boundaries.
        """
        check_batch(sentences)
        carries = self.bilm.state == "carry"
        given = (
            Sentence("", tokenized_sentence(sentence, number))
            for number, sentence in enumerate(sentences)
        )
        # With a carried state, sentences must run in order, so each window is one batch.
        for window in windows(given, max_tokens // WINDOW_BATCHES if carries else max_tokens):
            rows, steps = range(len(window)), [sentence.num_steps for sentence in window]
            scores: dict[int, SentenceScores] = {}
            for batch in [rows] if carries else batches(steps, max_tokens):
                scores.update(zip(batch, self._score([window[index].tokens for index in batch])))
            yield from (scores[index] for index in rows)

    def substitutes(self, sentence: Sequence[str], position: int, k: int = 10) -> list[Substitute]:
        """
        Predict other words for one token of a sentence, from the words before and after it.

        The biLM does not read the token itself, and the result does not contain it. Return the `k`
        most probable words, best first. `position` is the token's index, from 0. Raise a
        `ValueError` if there is no such token, or `k` is not positive.
        """
        tokens = tokenized_sentence(sentence)
        if not 0 <= position < len(tokens):
            raise ValueError(f"position is {position}, expected 0 to {len(tokens) - 1}")
        return self._substitutes(tokens, range(position, position + 1), k)[0]

    def all_substitutes(self, sentence: Sequence[str], k: int = 10) -> list[list[Substitute]]:
        """Return the `substitutes` of each token of a sentence, from a single run of the biLM."""
        tokens = tokenized_sentence(sentence)
        return self._substitutes(tokens, range(len(tokens)), k)

    @torch.no_grad()
    def _substitutes(self, tokens: list[str], positions: range, k: int) -> list[list[Substitute]]:
        if k < 1:
            raise ValueError(f"k is {k}, expected 1 or more")
        forward, backward, _ = self._contexts([tokens])
        found = []
        for position in positions:
            rows = torch.stack([forward[0, position], backward[0, position + 1]])
            both = torch.log_softmax(
                functional.linear(rows, self._weight, self._bias.squeeze(-1)), dim=1
            )
            product = torch.log_softmax(both.sum(dim=0), dim=0)
            allowed = product.clone()
            allowed[[*self._no_substitutes, self.vocabulary.id(tokens[position])]] = -math.inf
            best = allowed.topk(min(k, len(self.vocabulary))).indices
            best = best[allowed[best] > -math.inf]
            words = [self.vocabulary.words[index] for index in best.tolist()]
            figures = torch.stack([product, *both])[:, best].t().tolist()
            found.append([Substitute(word, *three) for word, three in zip(words, figures)])
        return found

    @torch.no_grad()
    def _score(self, sentences: list[list[str]]) -> list[SentenceScores]:
        # With a carried state, the biLM runs on one sentence at a time.
        groups = [[one] for one in sentences] if self.bilm.state == "carry" else [sentences]
        rows: list[list[torch.Tensor]] = [[], []]
        for group in groups:
            *outputs, mask = self._contexts(group)
            for found, output in zip(rows, outputs):
                found.append(output[mask])
        ids = [[self.vocabulary.id(token) for token in tokens] for tokens in sentences]
        after = [one for sentence in ids for one in (*sentence, self._end)]
        before = [one for sentence in ids for one in (self._begin, *sentence)]
        forward, backward = (
            -full_cross_entropy(
                torch.cat(found),
                torch.tensor(targets, device=mask.device),
                self._weight,
                self._bias,
            )
            for found, targets in zip(rows, (after, before))
        )
        lengths = [len(tokens) + 1 for tokens in sentences]
        pieces = zip(sentences, forward.split(lengths), backward.split(lengths))
        return [
            SentenceScores(
                tokens,
                ahead[:-1].tolist(),
                back[1:].tolist(),
                ahead[-1].item(),
                back[0].item(),
                [token not in self.vocabulary.ids for token in tokens],
            )
            for tokens, ahead, back in pieces
        ]

    def _contexts(
        self, sentences: list[list[str]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Return the top forward and top backward layer, and the mask of rows that predict a word.

        The forward layer's row `t` has read `<S>` and the tokens up to `t - 1`, and predicts token
        `t`. The backward layer's row `t` has read `</S>` and the tokens back to `t`, and predicts
        token `t - 1`. Token -1 is `<S>`, and token `num_tokens` is `</S>`. As in pretraining,
        neither direction reads its last boundary. The layers have shape `(batch_size, num_tokens +
        1, projection_dim)`, and the mask `(batch_size, num_tokens + 1)`.
        """
        bilm, rows = self.bilm, range(len(sentences))
        check_no_hooks(bilm.lstm, BiLstm)
        mask, vectors = bilm.embedded(bilm.batch_to_ids(sentences).to(bilm.device))
        tokens = vectors.new_zeros(*mask.shape, vectors.shape[1])
        tokens[mask] = vectors
        start = bilm.start_states(rows)
        layers, ends = bilm.lstm(tokens[:, :-1], mask.sum(dim=1) - 1, start, tokens[:, 1:])
        bilm.keep_states(rows, *ends)
        forward, backward = layers[-1].chunk(2, dim=-1)
        return forward, backward, mask[:, 1:]


def load_with_softmax(
    directory: str | Path, state: str = "primed", vocabulary_file: str | Path | None = None
) -> tuple[BiLm, WordSoftmax, WordVocabulary]:
    """Load a biLM, its softmax and its vocabulary; see `LanguageScorer.from_directory`."""
    folder = Path(NAMED_BILMS["embedded"][0]).parent if str(directory) == "embedded" else directory
    if not is_folder(Path(folder)):
        raise FileNotFoundError(f"there is no folder or ZIP file {directory}")
    with unpacked(Path(folder), (*MODEL, SOFTMAX_FILE)) as path:
        needed = [SOFTMAX_FILE] if vocabulary_file else [SOFTMAX_FILE, VOCABULARY_FILE]
        missing = [name for name in needed if not (path / name).is_file()]
        if missing:
            raise FileNotFoundError(
                f"{directory} has no {' and no '.join(missing)}, expected the folder of a finished "
                "pretraining run, or what export-bilm or convert-checkpoint --vocabulary wrote"
            )
        vocabulary = WordVocabulary.from_file(vocabulary_file or path / VOCABULARY_FILE)
        bilm = load_bilm(path, state=state)
        softmax = WordSoftmax(len(vocabulary), bilm.options.projection_dim)
        load_softmax(softmax, path / SOFTMAX_FILE)
    return bilm, softmax, vocabulary
