"""`elmo_token_embedder`: ELMo at the input of any AllenNLP model."""

from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.modules.token_embedders import ElmoTokenEmbedder as StockElmoTokenEmbedder
from allennlp.modules.token_embedders import TokenEmbedder

from elmo_plugin.data.indexer import check_elmo_tensors
from elmo_plugin.modules.elmo import Elmo


@TokenEmbedder.register("elmo_token_embedder", exist_ok=True)
class ElmoTokenEmbedder(StockElmoTokenEmbedder):
    """
    One mix of a biLM's layers for each token. Arguments and parameter names are those of AllenNLP's
    `ElmoTokenEmbedder`, with `state` and the two that let an archive stand alone.

    # Parameters

    options_file : `Optional[Union[str, Dict[str, Any]]]`, optional (default = `None`)
        See `Elmo`; with nothing given, the released Original biLM.
    weight_file : `Optional[str]`, optional (default = `None`)
        See `Elmo`.
    do_layer_norm : `bool`, optional (default = `False`)
        See `ScalarMix`.
    dropout : `float`, optional (default = `0.5`)
        Probability of dropping an element.
    requires_grad : `bool`, optional (default = `False`)
        Whether the biLM trains.
    projection_dim : `Optional[int]`, optional (default = `None`)
        Width of a linear layer behind the mix, where less than `embedding_dim` is wanted.
    vocab_to_cache : `Optional[List[str]]`, optional (default = `None`)
        Words whose token layer is computed once; their ids come as `word_inputs`.
    scalar_mix_parameters : `Optional[List[float]]`, optional (default = `None`)
        Fixed mix weights before the softmax: `[-9e10, -9e10, 1]` is the top layer alone, `[0, 0,
        0]` the plain average (the paper's Table 2).
    state : `str`, optional (default = `"carry"`)
        `"carry"`, `"reset"` or `"primed"`; see `BiLm`.
    options : `Optional[Dict[str, Any]]`, optional (default = `None`)
        See `Elmo`.
    pretrained_file : `Optional[str]`, optional (default = `None`)
        See `Elmo`.
    dtype : `Optional[str]`, optional (default = `None`)
        See `Elmo`.
    cache : `Optional[str]`, optional (default = `None`)
        See `Elmo`.

    # Raises

    `ConfigurationError`
        If the files do not exist or do not hold the biLM they should.
    """

    def __init__(
        self,
        options_file: Optional[Union[str, Dict[str, Any]]] = None,
        weight_file: Optional[str] = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: Optional[int] = None,
        vocab_to_cache: Optional[List[str]] = None,
        scalar_mix_parameters: Optional[List[float]] = None,
        state: str = "carry",
        options: Optional[Dict[str, Any]] = None,
        pretrained_file: Optional[str] = None,
        dtype: Optional[str] = None,
        cache: Optional[str] = None,
    ) -> None:
        TokenEmbedder.__init__(self)  # not AllenNLP's own, which reads the files
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            state=state,
            options=options,
            pretrained_file=pretrained_file,
            dtype=dtype,
            cache=cache,
        )
        self._projection: Optional[torch.nn.Linear] = None  # type: ignore[assignment]
        if projection_dim:
            self._projection = torch.nn.Linear(self._elmo.get_output_dim(), projection_dim)

    def get_output_dim(self) -> int:
        """`projection_dim` if given, else the biLM's `embedding_dim`."""
        if self._projection is not None:
            return self._projection.out_features
        return self._elmo.get_output_dim()

    def forward(
        self,
        elmo_tokens: Optional[torch.Tensor] = None,
        word_inputs: Optional[torch.Tensor] = None,
        **others: torch.Tensor,
    ) -> torch.Tensor:
        """
        # Parameters

        elmo_tokens : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`.
        word_inputs : `Optional[torch.Tensor]`
            Word ids, shape `(batch_size, num_tokens)`; with `vocab_to_cache`.
        others : `torch.Tensor`
            Nothing, where the indexer of this key is the right one.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens, get_output_dim())`.

        # Raises

        `ConfigurationError`
            If the indexer is of another type.
        """
        check_elmo_tensors({"elmo_tokens": elmo_tokens, **others})
        assert elmo_tokens is not None
        embedded = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        if self._projection is not None:
            embedded = self._projection(embedded)
        return embedded
