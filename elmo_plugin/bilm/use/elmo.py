"""`Elmo`: learned weighted sums of a biLM's layers, with the arguments of AllenNLP's class."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

import torch

from elmo_plugin.bilm.files.load import load_bilm
from elmo_plugin.bilm.kernels.backend import check_ids
from elmo_plugin.bilm.model.bilm import BiLmOutput
from elmo_plugin.bilm.model.scalar_mix import ScalarMix
from elmo_plugin.bilm.use.layer_cache import LayerCache, check_cacheable

logger = logging.getLogger(__name__)


class Elmo(torch.nn.Module):
    """
    ELMo representations: scalar mixes of a biLM's layers (Peters et al. 2018, section 3.2).

    Arguments, outputs and parameter names are those of AllenNLP's `Elmo`; `state` and the arguments
    after it are new. With the default `state="carry"`, as in AllenNLP, a sentence's vectors depend
    on the batches before it, in `eval()` too; `"primed"` gives the same vectors every time.

    # Parameters

    options_file : `Optional[Union[str, Dict[str, Any]]]`, optional (default = `None`)
        The biLM's `options.json`: a name (`embedded`, `small`, `medium`, `original`, `5.5B`), a
        path, a URL, or its content. A folder or ZIP file may hold options and weights, or an
        ELMoForManyLangs model. Such a model needs ids from this class's `batch_to_ids` (in configs:
        an indexer with `code_points`). If no file is given, the released Original biLM is used.
    weight_file : `Optional[str]`, optional (default = `None`)
        The biLM's `weights.hdf5`; not needed with a name, folder or ZIP in `options_file`.
    num_output_representations : `int`, optional (default = `1`)
        Number of scalar mixes of the biLM's layers, each with its own weights.
    requires_grad : `bool`, optional (default = `False`)
        Train the parameters of the biLM.
    do_layer_norm : `bool`, optional (default = `False`)
        Normalise the layers before mixing; see `ScalarMix`. As in AllenNLP, the mean and variance
        include the sentence boundaries.
    dropout : `float`, optional (default = `0.5`)
        Probability of dropping an element of a representation in training.
    vocab_to_cache : `Optional[List[str]]`, optional (default = `None`)
        Words whose token layer is computed once; pass their ids as `word_inputs`. The first must be
        the padding token.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Keep the rows of the two sentence boundaries in the outputs.
    scalar_mix_parameters : `Optional[List[float]]`, optional (default = `None`)
        Fixed weights of every mix, before the softmax, one per layer; `None` to learn the weights.
    module : `Optional[torch.nn.Module]`, optional (default = `None`)
        A biLM to use instead of files. Its `forward(inputs, word_inputs)` returns `"activations"`
        and `"mask"`, and its `num_layers` is the number of activations. Its state and precision,
        and which of its parameters train, stay as they are.
    state : `str`, optional (default = `"carry"`)
        `"carry"`, `"reset"` or `"primed"`; see `BiLm`.
    options : `Optional[Dict[str, Any]]`, optional (default = `None`)
        The content of `options.json`. It makes an archive independent of that file.
    pretrained_file : `Optional[str]`, optional (default = `None`)
        The weight file that belongs to `options`. AllenNLP drops this key when it loads an archive,
        because the archive contains the weights.
    dtype : `Optional[str]`, optional (default = `None`)
        Precision of a frozen biLM's matrix products: `"float16"`, `"bfloat16"` or `"int8"`, faster
        and less precise; see `BiLm`. On the CPU, `"float16"` has no effect on a small biLM, such as
        the embedded one, and a warning says so.
    cache : `Optional[str]`, optional (default = `None`)
        Where to cache layers: `"memory"` or a directory; see `LayerCache`. The biLM then runs only
        once on each sentence. It must be frozen, and `state` must be `"reset"` or `"primed"`.

    # Raises

    `ValueError`, `FileNotFoundError`
        If arguments contradict each other, or the files do not hold a biLM.
    """

    def __init__(
        self,
        options_file: Optional[Union[str, Dict[str, Any]]] = None,
        weight_file: Optional[str] = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[List[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[List[float]] = None,
        module: Optional[torch.nn.Module] = None,
        state: str = "carry",
        options: Optional[Dict[str, Any]] = None,
        pretrained_file: Optional[str] = None,
        dtype: Optional[str] = None,
        cache: Optional[str] = None,
    ) -> None:
        super().__init__()
        if cache is not None:
            check_cacheable(cache, state, requires_grad, vocab_to_cache, module)
        source = _one("options", options, "options_file", options_file)
        weights = _one("pretrained_file", pretrained_file, "weight_file", weight_file)
        if weights is not None and not isinstance(weights, (str, Path)):
            raise ValueError(
                f"weight_file is {weights!r}, expected a path, a URL or a name; is it "
                "num_output_representations, the third argument?"
            )
        if num_output_representations < 1:
            raise ValueError(
                f"num_output_representations is {num_output_representations}, expected 1 or more"
            )
        if module is None:
            source, weights, cache = self.find_files(source, weights, cache)
            bilm = load_bilm(source, weights, requires_grad=requires_grad, state=state, dtype=dtype)
            if vocab_to_cache:
                bilm.cache_vocabulary(vocab_to_cache, requires_grad)
            module = bilm
        elif source is not None or weights is not None:
            raise ValueError(
                f"options_file {source!r} and weight_file {weights!r} were given beside module, "
                "expected either files or a module"
            )
        elif dtype is not None or state not in ("carry", getattr(module, "state", state)):
            raise ValueError(
                f"state {state!r} and dtype {dtype!r} were given beside module, which has its own; "
                "expected neither"
            )
        self._elmo_lstm = module
        self._cache = None if cache is None else LayerCache(cache)
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = torch.nn.Dropout(p=dropout)
        # As in AllenNLP, `forward` reads its length, and the mixes from attributes.
        self._scalar_mixes: list[ScalarMix] = []
        for index in range(num_output_representations):
            mix = ScalarMix(
                module.num_layers,  # type: ignore[arg-type]
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{index}", mix)
            self._scalar_mixes.append(mix)

    def find_files(self, source: Any, weights: Any, cache: Optional[str]) -> tuple[Any, Any, Any]:
        """Return the options, weight file and cache to use; an archive of AllenNLP has its own."""
        if weights is None and isinstance(source, dict):
            logger.warning(
                "The biLM has RANDOM weights: options were given without a weight file, and no "
                "archive is being loaded that would bring weights"
            )
        return source, weights, cache

    @property
    def bilm(self) -> torch.nn.Module:
        """The biLM, or the module that was given in its place."""
        return self._elmo_lstm

    @property
    def num_output_representations(self) -> int:
        """Number of representations that `forward` returns."""
        return len(self._scalar_mixes)

    @property
    def scalar_mixes(self) -> list[ScalarMix]:
        """The `ScalarMix` of each output representation."""
        return [getattr(self, f"scalar_mix_{k}") for k in range(self.num_output_representations)]

    def get_output_dim(self) -> int:
        """Return the width of a representation, the biLM's `embedding_dim`."""
        return self._elmo_lstm.get_output_dim()  # type: ignore[operator]

    def batch_to_ids(self, batch: Iterable[Iterable[Any]]) -> torch.Tensor:
        """
        Convert tokenized sentences to the character ids that this biLM takes as `inputs`: bytes, or
        Unicode code points for an ELMoForManyLangs model; see `elmo_plugin.batch_to_ids`.
        """
        return self._elmo_lstm.batch_to_ids(batch)  # type: ignore[operator]

    def reset_states(self) -> None:
        """Forget the LSTM state carried from batch to batch, so that the next starts with zeros."""
        self._elmo_lstm.reset_states()  # type: ignore[operator]

    def forget_derived(self) -> None:
        """
        Discard packed weights and other values computed from the weights; call it after changing
        weights through `.data`, which PyTorch's version counters do not reveal.
        """
        self._elmo_lstm.forget_derived()  # type: ignore[operator]

    def forward(
        self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor] = None
    ) -> dict[str, Any]:
        """
        Compute the representations of a batch of sentences.

        # Parameters

        inputs : `torch.Tensor`
            Character ids, shape `(batch_size, num_tokens, num_characters)`. There may be several
            batch dimensions.
        word_inputs : `Optional[torch.Tensor]`
            Word ids, shape `(batch_size, num_tokens)`; only with `vocab_to_cache`.

        # Returns

        `dict[str, Any]`
            `"elmo_representations"`: list of `num_output_representations` tensors of shape
            `(batch_size, num_tokens, embedding_dim)`. `"mask"`: bool, shape `(batch_size,
            num_tokens)`. With `keep_sentence_boundaries`, `num_tokens` is 2 larger.

        # Raises

        `ValueError`
            If ids have another shape or type.
        """
        check_ids(inputs)
        tokens = inputs.shape[:-1]
        if word_inputs is not None:
            check_ids(word_inputs, "word ids, shape (batch_size, num_tokens)")
            # Programs also pass the word ids twice, as the character ids are then not read.
            if word_inputs.shape == inputs.shape and self._has_cached_vocab:
                tokens = inputs.shape
            if word_inputs.shape != tokens:
                raise ValueError(
                    f"word ids have shape {tuple(word_inputs.shape)}, expected one for each token: "
                    f"{tuple(tokens)}"
                )
            word_inputs = word_inputs.reshape(tokens[:-1].numel(), tokens[-1])
        leading = tokens[:-1]
        inputs = inputs.reshape(leading.numel(), *inputs.shape[len(leading) :])
        output = BiLmOutput.of(self._layers(inputs, word_inputs))
        mixed = BiLmOutput([mix(*output[:2]) for mix in self.scalar_mixes], output.mask)
        if not self._keep_sentence_boundaries:
            mixed = mixed.tokens()
        return {
            "elmo_representations": [
                self._dropout(layer).view(*leading, *layer.shape[1:]) for layer in mixed.layers
            ],
            "mask": mixed.mask.view(*leading, mixed.mask.shape[1]),
        }

    def _layers(self, inputs: torch.Tensor, word_inputs: Optional[torch.Tensor]) -> dict[str, Any]:
        """Run the biLM, or return its layers from the cache."""
        if self._cache is not None:
            # A replica of `DataParallel` has no parameters that would say whether they train.
            trains = [one.requires_grad for one in self._elmo_lstm.parameters()]
            if trains and not any(trains):
                return self._cache.layers(self._elmo_lstm, inputs)  # type: ignore[arg-type]
        return self._elmo_lstm(inputs, word_inputs if self._has_cached_vocab else None)


def _one(name: str, value: Any, other_name: str, other: Any) -> Any:
    """Return the argument that is not `None`, if any; raise a `ValueError` if both are given."""
    if value is not None and other is not None:
        first, second = (
            key if isinstance(given, dict) else f"{key} {given!r}"
            for key, given in ((name, value), (other_name, other))
        )
        raise ValueError(f"{first} and {second} are both given, expected one of them")
    return other if value is None else value
