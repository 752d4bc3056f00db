"""`ElmoHub`: a biLM with the inputs and outputs of TensorFlow Hub's `google/elmo` modules."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from elmo_plugin.bilm.model.bilm import BiLmOutput
from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.bilm.model.tokens import check_batch, tokenized_batch
from elmo_plugin.bilm.use.embedder import load_or_embedded

SIGNATURES = (None, "default", "tokens")


class ElmoHub(torch.nn.Module):
    """
    biLM with the inputs and the five outputs of https://tfhub.dev/google/elmo/3.

    As in that module, only the scalar mix is trainable by default: three weights and gamma.

    # Parameters

    options_file, weight_file : `Any`, optional (default = the embedded biLM)
        See `Elmo`.
    train_lstm : `bool`, optional (default = `False`)
        Train the LSTM too, as in `google/elmo/1`. The token layer is never trained.
    state : `str`, optional (default = `"primed"`)
        See `BiLm`.
    """

    def __init__(
        self,
        options_file: str | Path | dict[str, Any] | None = None,
        weight_file: str | Path | None = None,
        train_lstm: bool = False,
        state: str = "primed",
    ) -> None:
        super().__init__()
        self.bilm = load_or_embedded("ElmoHub", options_file, weight_file, state)
        self.bilm.lstm.requires_grad_(train_lstm)
        self.mix = ScalarMix(self.bilm.num_layers)

    def forward(
        self,
        sentences: Any = None,
        sequence_len: Sequence[int] | torch.Tensor | None = None,
        signature: str | None = None,
        as_dict: bool = True,
        inputs: Any = None,
    ) -> Any:
        """
        Compute the module's outputs for a batch of sentences.

        # Parameters

        sentences : `Any`
            Strings, which are split on spaces; or lists of tokens, padded on the right with `""`.
        sequence_len : `Optional[Union[Sequence[int], torch.Tensor]]`
            Number of tokens of each sentence without padding; only with lists of tokens. If not
            given, there is no padding.
        signature : `Optional[str]`
            TF-Hub's `"default"` for strings or `"tokens"`; either if not given.
        as_dict : `bool`, optional (default = `True`)
            If `False`, return `"default"` alone.
        inputs : `Any`
            `sentences` by TF-Hub's name. Both may be a dict: of `"strings"`, or of `"tokens"` and
            `"sequence_len"`.

        # Returns

        `dict[str, torch.Tensor]`
            `"word_emb"`: the token layer, shape `(batch_size, num_tokens, projection_dim)`.
            `"lstm_outputs1"`, `"lstm_outputs2"`: the LSTM layers, shape `(batch_size, num_tokens,
            embedding_dim)`. `"elmo"`: the scalar mix of the layers, shape `(batch_size, num_tokens,
            embedding_dim)`. `"default"`: the mean of `"elmo"` over the sentence's tokens, shape
            `(batch_size, embedding_dim)`. Outputs are zero for padding and for sentences without
            tokens. Sentence boundaries are left out.

        # Raises

        `ValueError`
            If `sequence_len` is given with strings, or does not fit the tokens; if `signature` is
            unknown or does not fit the sentences, or `inputs` has other keys.
        """
        sentences = inputs if sentences is None else sentences
        if isinstance(sentences, Mapping) and (
            sentences is inputs or not sentences.keys().isdisjoint(("strings", "tokens"))
        ):
            given = dict(sentences)
            sequence_len = given.pop("sequence_len", sequence_len)
            if given.keys() not in ({"strings"}, {"tokens"}):
                raise ValueError(
                    f"inputs has the keys {list(sentences)}, expected strings, or tokens and "
                    "sequence_len"
                )
            (sentences,) = given.values()
        if signature not in SIGNATURES:
            raise ValueError(f"signature is {signature!r}, expected one of {SIGNATURES}")
        if sentences is None:
            raise ValueError("neither sentences nor inputs are given, expected one of them")
        if isinstance(sentences, str):
            raise ValueError(f"sentences is the string {sentences!r}, expected a list of strings")
        check_batch(sentences)
        sentences = list(sentences)
        if signature and any(isinstance(one, str) == (signature == "tokens") for one in sentences):
            raise ValueError(f"signature {signature!r} was given with the other kind of sentences")
        ids = self.bilm.batch_to_ids(_tokens(sentences, sequence_len))
        output = BiLmOutput.of(self.bilm(ids.to(self.mix.gamma.device)))
        layers, mask, _ = output.tokens()
        elmo = self.mix(layers)
        named = {f"lstm_outputs{index}": layer for index, layer in enumerate(layers) if index}
        found = {
            "word_emb": layers[0][..., : self.bilm.options.projection_dim],
            **named,
            "elmo": elmo,
            "default": elmo.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1),
        }
        return found if as_dict else found["default"]


def _tokens(
    sentences: list[Any], sequence_len: Sequence[int] | torch.Tensor | None
) -> list[list[str]]:
    strings = sum(isinstance(sentence, str) for sentence in sentences)
    if 0 < strings < len(sentences):
        raise ValueError("sentences are strings and lists of tokens, expected all of one kind")
    if strings:
        if sequence_len is not None:
            raise ValueError("sequence_len was given with strings, expected it with tokens only")
        return [[word for word in str(text).split(" ") if word] for text in sentences]
    tokens = tokenized_batch(sentences)
    if sequence_len is None:
        return tokens
    lengths = [int(length) for length in sequence_len]
    if len(lengths) != len(tokens):
        raise ValueError(
            f"sequence_len has {len(lengths)} numbers, expected {len(tokens)}: one per sentence"
        )
    for length, sentence in zip(lengths, tokens):
        if not 0 <= length <= len(sentence):
            raise ValueError(
                f"sequence_len has {length} for {len(sentence)} tokens, expected 0 to "
                f"{len(sentence)}"
            )
    return [sentence[:length] for length, sentence in zip(lengths, tokens)]
