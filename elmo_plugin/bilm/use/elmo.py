"""ELMo: mixes of a biLM's layers."""

from typing import Any, Optional, Sequence, Union

import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.bilm.use.layer_cache import LayerCache


class Elmo(torch.nn.Module):
    """
    ELMo representations: learned mixes of a frozen or fine-tuned biLM's layers
    (Peters et al. 2018, section 3.2). Arguments, outputs and parameter names are those of
    AllenNLP's `Elmo`.

    # Parameters

    options_file : `Optional[Union[str, dict[str, Any]]]`, optional (default = `None`)
        The biLM's `options.json`: a name (`embedded`, `small`, `medium`, `original`, `5.5B`), a
        path, a URL, or its content. With neither file given, the released Original biLM is used.
    weight_file : `Optional[str]`, optional (default = `None`)
        Its `weights.hdf5`, likewise; found from a name in `options_file` if not given.
    num_output_representations : `int`, optional (default = `1`)
        How many mixes, each with weights of its own, over one run of the biLM.
    requires_grad : `bool`, optional (default = `False`)
        Whether the biLM trains.
    do_layer_norm : `bool`, optional (default = `False`)
        See `ScalarMix`; boundaries are among the tokens it counts, as in AllenNLP.
    dropout : `float`, optional (default = `0.5`)
        Probability of dropping an element of a representation, in training.
    vocab_to_cache : `Optional[Sequence[str]]`, optional (default = `None`)
        Words whose token layer is computed once; pass their ids as `word_inputs`. The first must be
        the padding token.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Whether outputs keep the rows of the two boundaries.
    scalar_mix_parameters : `Optional[Sequence[float]]`, optional (default = `None`)
        Fixed mix weights before the softmax, one a layer; `None` to learn them.
    module : `Optional[torch.nn.Module]`, optional (default = `None`)
        A biLM to use in place of the files: `forward(inputs, word_inputs)` returns `"activations"`
        and `"mask"`, and `num_layers` says how many there are.
    state : `str`, optional (default = `"carry"`)
        See `BiLm`.
    dtype : `Optional[str]`, optional (default = `None`)
        `"bfloat16"` or `"int8"` for a faster, less precise biLM; see `BiLm`.
    cache : `Optional[str]`, optional (default = `None`)
        `"memory"` or a directory: the biLM runs once on a sentence, its layers are kept there
        (see `LayerCache`). The biLM is frozen, and in `"reset"` or `"primed"`.

    # Raises

    `ValueError`
        If files and `module` are both given, the files do not hold the biLM they should, `dtype` is
        given for a biLM that trains, or `cache` for one whose vectors change.
    """

    def __init__(
        self,
        options_file: Optional[Union[str, dict[str, Any]]] = None,
        weight_file: Optional[str] = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[Sequence[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[Sequence[float]] = None,
        module: Optional[torch.nn.Module] = None,
        state: str = "carry",
        dtype: Optional[str] = None,
        cache: Optional[str] = None,
    ) -> None:
        # Not the next class's constructor: `elmo_plugin.modules.elmo` puts AllenNLP's behind.
        torch.nn.Module.__init__(self)
        self._cache: Optional[LayerCache] = None
        if cache is not None:
            if requires_grad or vocab_to_cache or state == "carry" or module is not None:
                raise ValueError(
                    f"cache {cache!r} is given with requires_grad {requires_grad}, state "
                    f"{state!r}, vocab_to_cache {'given' if vocab_to_cache else None} and module "
                    f"{'given' if module is not None else None}, expected a frozen biLM from "
                    'files in state "reset" or "primed" without vocab_to_cache'
                )
            self._cache = LayerCache(cache)
        if module is None:
            module = load_bilm(
                options_file, weight_file, requires_grad=requires_grad, state=state, dtype=dtype
            )
            if vocab_to_cache:
                module.cache_vocabulary(vocab_to_cache, requires_grad)
        elif options_file is not None or weight_file is not None:
            raise ValueError(
                f"options_file {options_file!r} and weight_file {weight_file!r} were given beside "
                "module, expected either files or a module"
            )
        self._elmo_lstm = module
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = torch.nn.Dropout(p=dropout)
        self.num_output_representations = num_output_representations
        for index in range(num_output_representations):
            mix = ScalarMix(
                module.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{index}", mix)

    @property
    def scalar_mixes(self) -> list[ScalarMix]:
        """One a representation."""
        return [getattr(self, f"scalar_mix_{k}") for k in range(self.num_output_representations)]

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        """AllenNLP's name for them, which people use."""
        return self.scalar_mixes

    def get_output_dim(self) -> int:
        """The biLM's `embedding_dim`."""
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator]

    def reset_states(self) -> None:
        """See `BiLm.reset_states`."""
        self._elmo_lstm.reset_states()  # type: ignore[operator]

    def train(self, mode: bool = True) -> "Elmo":
        """See `BiLm.train`; the cache looks at the weights again."""
        if self._cache is not None:
            self._cache.weights.doubt()
        return super().train(mode)

    def forward(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> dict[str, Any]:
        """
        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`; any number of
            dimensions may stand for `batch_size`.
        word_inputs : `Optional[torch.Tensor]`
            Word ids, the same shape without `num_characters`; only with `vocab_to_cache`.

        # Returns

        `dict[str, Any]`
            `"elmo_representations"`: `num_output_representations` tensors of shape
            `(batch_size, num_tokens, embedding_dim)`, and `"mask"`: bool, shape
            `(batch_size, num_tokens)`; `num_tokens + 2` with `keep_sentence_boundaries`.
        """
        leading = inputs.shape[:-2]
        if word_inputs is not None:
            word_inputs = word_inputs.reshape(leading.numel(), word_inputs.shape[-1])
        if not self._has_cached_vocab:
            word_inputs = None
        inputs = inputs.reshape(leading.numel(), *inputs.shape[-2:])
        if self._cache is not None and not any(
            parameter.requires_grad for parameter in self._elmo_lstm.parameters()
        ):
            output = self._cache.layers(self._elmo_lstm, inputs)  # type: ignore[arg-type]
        else:
            output = self._elmo_lstm(inputs, word_inputs)
        mask = output["mask"]
        mixed = [mix(output["activations"], mask) for mix in self.scalar_mixes]
        if not self._keep_sentence_boundaries:
            # A sentence of n tokens is <S>, n tokens, </S>: what remains starts at 1, and as many
            # positions are real as were two further on.
            mask = mask[:, 2:]
            mixed = [(layer[:, 1:-1] * mask.unsqueeze(-1)) for layer in mixed]
        return {
            "elmo_representations": [
                self._dropout(layer).view(*leading, *layer.shape[1:]) for layer in mixed
            ],
            "mask": mask.view(*leading, mask.shape[1]),
        }
