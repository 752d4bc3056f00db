"""`elmo_token_embedder`: ELMo as a token embedder of any AllenNLP model."""

from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.token_embedders import ElmoTokenEmbedder as StockElmoTokenEmbedder
from allennlp.modules.token_embedders import TokenEmbedder

from elmo_plugin.data.indexer import check_elmo_tensors
from elmo_plugin.modules.elmo import Elmo


@TokenEmbedder.register("elmo_token_embedder", exist_ok=True)
class ElmoTokenEmbedder(StockElmoTokenEmbedder):
    """
    Token embedder that returns a scalar mix of a biLM's layers for each token. Arguments and
    parameter names are those of AllenNLP's `ElmoTokenEmbedder`; arguments from `state` on are new.

    # Parameters

    options_file, weight_file : `Optional[str]`, optional (default = the released Original biLM)
    do_layer_norm : `bool`, optional (default = `False`)
    dropout : `float`, optional (default = `0.5`)
    requires_grad : `bool`, optional (default = `False`)
        See `Elmo`.
    projection_dim : `Optional[int]`, optional (default = `None`)
        Output width of a linear layer after the scalar mix; `None` for no such layer.
    vocab_to_cache : `Optional[List[str]]`, optional (default = `None`)
        See `Elmo`. The word ids are passed to `forward` as `word_inputs`.
    scalar_mix_parameters : `Optional[List[float]]`, optional (default = `None`)
        Fixed weights of the scalar mix, before the softmax; `None` to learn them. `[-9e10, -9e10,
        1]` selects the top of three layers, `[0, 0, 0]` averages them (the ELMo paper's Table 2).
    state : `str`, optional (default = `"carry"`)
    options : `Optional[Dict[str, Any]]`, optional (default = `None`)
    pretrained_file, dtype, cache : `Optional[str]`, optional (default = `None`)
        See `Elmo`.

    # Raises

    `ConfigurationError`
        If the files do not exist or do not hold a biLM, or `projection_dim` is negative.
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
        if projection_dim is not None and projection_dim < 0:
            raise ConfigurationError(f"projection_dim is {projection_dim}, expected 0 or more")
        TokenEmbedder.__init__(self)  # skips AllenNLP's constructor, which reads the files
        self._elmo = Elmo(  # type: ignore[assignment]
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
        self.output_dim = projection_dim or self._elmo.get_output_dim()

    def get_output_dim(self) -> int:
        """Return `projection_dim` if it was given, else the biLM's `embedding_dim`."""
        return self.output_dim

    def forward(
        self,
        elmo_tokens: Optional[torch.Tensor] = None,
        word_inputs: Optional[torch.Tensor] = None,
        **others: torch.Tensor,
    ) -> torch.Tensor:
        """
        Return the scalar mix of the biLM's layers for each token, after the projection if any.

        # Parameters

        elmo_tokens : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`.
        word_inputs : `Optional[torch.Tensor]`
            Word ids, shape `(batch_size, num_tokens)`, used with `vocab_to_cache`.
        others : `torch.Tensor`
            Tensors of an indexer of another type than `elmo_characters`; any of them is an error.

        # Returns

        `torch.Tensor`
            Shape `(batch_size, num_tokens, get_output_dim())`.

        # Raises

        `ConfigurationError`
            If the indexer does not have the type `elmo_characters`.
        """
        check_elmo_tensors({"elmo_tokens": elmo_tokens, **others})
        assert elmo_tokens is not None
        embedded = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        if self._projection is not None:
            embedded = self._projection(embedded)
        return embedded
