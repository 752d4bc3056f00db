"""`Elmo` as AllenNLP's users call it: from names, files or URLs."""

from collections.abc import Sequence
from typing import Any

import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.model.elmo import ElmoMixes
from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.bilm.use.cached_vocabulary import CachedVocabularyBiLm
from elmo_plugin.bilm.use.layer_cache import LayerCache


class Elmo(ElmoMixes):
    """
    ELMo representations from a biLM's files. Arguments, outputs and parameter names are those of
    AllenNLP's `Elmo`.

    # Parameters

    options_file : `Optional[Union[str, dict[str, Any]]]`, optional (default = `None`)
        The biLM's `options.json`: a name (`embedded`, `small`, `medium`, `original`, `5.5B`), a
        path, a URL, or its content. A folder or ZIP holds both files, or an ELMoForManyLangs model,
        whose inputs are `batch_to_ids`'s here. With neither file given, the released Original biLM
        is used.
    weight_file : `Optional[str]`, optional (default = `None`)
        Its `weights.hdf5`, likewise; found from a name, folder or ZIP in `options_file` if not
        given.
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
        `"float16"`, `"bfloat16"` or `"int8"` for a faster, less precise biLM; see `BiLm`.
    cache : `Optional[str]`, optional (default = `None`)
        `"memory"` or a directory: the biLM runs once on a sentence, its layers are kept there
        (see `LayerCache`). The biLM is frozen, and in `"reset"` or `"primed"`.

    # Raises

    `ValueError`
        If files and `module` are both given, the files do not hold the biLM they should, `dtype` is
        given for a biLM that trains, or `cache` for one whose vectors change.
    """

    bilm_class: type[CachedVocabularyBiLm] = CachedVocabularyBiLm

    def __init__(
        self,
        options_file: str | dict[str, Any] | None = None,
        weight_file: str | None = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: torch.nn.Module | None = None,
        state: str = "carry",
        dtype: str | None = None,
        cache: str | None = None,
    ) -> None:
        if cache is not None and (
            requires_grad or vocab_to_cache or state == "carry" or module is not None
        ):
            raise ValueError(
                f"cache {cache!r} is given with requires_grad {requires_grad}, state "
                f"{state!r}, vocab_to_cache {'given' if vocab_to_cache else None} and module "
                f"{'given' if module is not None else None}, expected a frozen biLM from "
                'files in state "reset" or "primed" without vocab_to_cache'
            )
        if module is None:
            bilm = load_bilm(
                options_file,
                weight_file,
                requires_grad=requires_grad,
                state=state,
                dtype=dtype,
                bilm_class=self.bilm_class,
            )
            if vocab_to_cache:
                assert isinstance(bilm, CachedVocabularyBiLm)
                bilm.cache_vocabulary(vocab_to_cache, requires_grad)
            module = bilm
        elif options_file is not None or weight_file is not None:
            raise ValueError(
                f"options_file {options_file!r} and weight_file {weight_file!r} were given beside "
                "module, expected either files or a module"
            )
        super().__init__(
            module,
            num_output_representations,
            do_layer_norm,
            dropout,
            keep_sentence_boundaries,
            scalar_mix_parameters,
        )
        self._cache = None if cache is None else LayerCache(cache)
        self._has_cached_vocab = vocab_to_cache is not None

    @property
    def _scalar_mixes(self) -> list[ScalarMix]:
        """AllenNLP's name for `scalar_mixes`, which people use."""
        return self.scalar_mixes

    def batch_to_ids(self, batch: Sequence[Sequence[str]]) -> torch.Tensor:
        """
        # Parameters

        batch : `Sequence[Sequence[str]]`
            Tokenized sentences.

        # Returns

        `torch.Tensor`
            Character ids as this biLM takes them, whether of bytes or of code points; shape
            `(batch_size, num_tokens, num_characters)`.
        """
        return self._elmo_lstm.batch_to_ids(batch)  # type: ignore[operator]

    def forget_derived(self) -> None:
        """See `WeightsModule.forget_derived`; call it where weights were written by `.data`."""
        self._elmo_lstm.forget_derived()  # type: ignore[operator]

    def train(self, mode: bool = True) -> "Elmo":
        """See `BiLm.train`; the cache looks at the weights again."""
        if self._cache is not None:
            self._cache.weights.doubt()
        return super().train(mode)

    def _layers(self, inputs: torch.Tensor, word_inputs: torch.Tensor | None) -> dict[str, Any]:
        trains = (one.requires_grad for one in self._elmo_lstm.parameters())
        if self._cache is not None and not any(trains):
            return self._cache.layers(self._elmo_lstm, inputs)  # type: ignore[arg-type]
        return super()._layers(inputs, word_inputs if self._has_cached_vocab else None)
