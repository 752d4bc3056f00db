"""The words that a biLM in pretraining predicts, as AllenNLP's vocabulary."""

from collections import Counter
from typing import Iterable, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance, Vocabulary

from elmo_plugin.bilm.training.vocabulary import WordVocabulary

NAMESPACE = "words"


@Vocabulary.register("bilm_words", exist_ok=True, constructor="from_text")
class BilmVocabulary(Vocabulary):
    """
    One namespace, `words`, in bilm-tf's order: `<S>`, `</S>`, `<UNK>`, then words by falling
    frequency. Ids are line numbers from 0; there is no padding.
    """

    @classmethod
    def from_text(
        cls,
        instances: Iterable[Instance],
        vocabulary_file: Optional[str] = None,
        min_count: int = 1,
        max_size: Optional[int] = None,
    ) -> "BilmVocabulary":
        """
        Registered as "bilm_words".

        # Parameters

        instances : `Iterable[Instance]`
            Sentences to count words in; not read where a file is given.
        vocabulary_file : `Optional[str]`, optional (default = `None`)
            A vocabulary made before: `python -m elmo_plugin vocabulary`, or a run's
            `vocabulary.txt`.
        min_count : `int`, optional (default = `1`)
            Rarer words become `<UNK>`.
        max_size : `Optional[int]`, optional (default = `None`)
            At most so many words, specials included.

        # Raises

        `ConfigurationError`
            If the file is not a vocabulary, or a number is less than there can be.
        """
        if vocabulary_file is not None:
            try:
                return cls.from_words(WordVocabulary.from_file(vocabulary_file))
            except (ValueError, OSError) as error:
                raise ConfigurationError(str(error)) from error
        counts: Counter = Counter()
        for instance in instances:
            counts.update(token.text for token in instance["tokens"])  # type: ignore[attr-defined]
        try:
            return cls.from_words(WordVocabulary.from_counts(counts, min_count, max_size))
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def from_words(cls, words: WordVocabulary) -> "BilmVocabulary":
        """
        # Parameters

        words : `WordVocabulary`
        """
        vocabulary = cls(non_padded_namespaces=[NAMESPACE])
        for word in words.words:
            vocabulary.add_token_to_namespace(word, NAMESPACE)
        return vocabulary


def word_vocabulary(vocabulary: Union[BilmVocabulary, Vocabulary]) -> WordVocabulary:
    """
    The words of an AllenNLP vocabulary.

    # Parameters

    vocabulary : `Union[BilmVocabulary, Vocabulary]`
        One with the namespace `words`.

    # Raises

    `ConfigurationError`
        If it is not one that `bilm_words` made.
    """
    by_id = vocabulary.get_index_to_token_vocabulary(NAMESPACE)
    try:
        return WordVocabulary(
            [by_id[index] for index in range(len(by_id))], source=f"the namespace {NAMESPACE!r}"
        )
    except ValueError as error:
        raise ConfigurationError(
            f'{error}; does the config say "vocabulary": {{"type": "bilm_words"}}?'
        ) from error
