"""`Elmo` as configs build it: the `elmo` argument of a model."""

import logging
from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import Elmo as StockElmo

from elmo_plugin.bilm.model.bilm import BiLm
from elmo_plugin.bilm.use import elmo
from elmo_plugin.modules.archived_bilm import is_loading, options_in_archive
from elmo_plugin.modules.random_draws import draw_as_allennlp

logger = logging.getLogger(__name__)


class _AllenNlpsElmo(StockElmo):
    """Its name alone: its constructor makes none of its parts."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)


class Elmo(elmo.Elmo, _AllenNlpsElmo):  # type: ignore[misc]
    """
    `elmo_plugin.bilm.use.elmo.Elmo` from a config; what it calls a `ValueError` is here a
    `ConfigurationError`. It is an AllenNLP `Elmo` too, for `isinstance`; nothing of that runs.

    # Parameters

    options_file : `Optional[Union[str, Dict[str, Any]]]`, optional (default = `None`)
        The biLM's `options.json`: a name (`embedded`, `small`, `medium`, `original`, `5.5B`), a
        path or a URL; or a folder or ZIP of the whole biLM, ELMoForManyLangs' too, for which the
        indexer has `code_points`. With nothing given, the released Original biLM is used.
    weight_file : `Optional[str]`, optional (default = `None`)
        Its `weights.hdf5`, likewise.
    num_output_representations : `int`, optional (default = `1`)
        How many mixes.
    requires_grad : `bool`, optional (default = `False`)
        Whether the biLM trains.
    do_layer_norm : `bool`, optional (default = `False`)
        See `ScalarMix`.
    dropout : `float`, optional (default = `0.5`)
        Probability of dropping an element of a representation.
    vocab_to_cache : `Optional[List[str]]`, optional (default = `None`)
        Words whose token layer is computed once, the padding token first.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Whether outputs keep the boundaries.
    scalar_mix_parameters : `Optional[List[float]]`, optional (default = `None`)
        Fixed mix weights before the softmax.
    module : `Optional[torch.nn.Module]`, optional (default = `None`)
        A biLM in place of the files; from Python only.
    state : `str`, optional (default = `"carry"`)
        `"carry"`, `"reset"` or `"primed"`; see `BiLm`.
    options : `Optional[Dict[str, Any]]`, optional (default = `None`)
        The content of `options.json`, inlined: the archive then stands alone.
    pretrained_file : `Optional[str]`, optional (default = `None`)
        The weight file beside `options`. AllenNLP drops this key when it loads an archive, which
        brings the weights itself.
    dtype : `Optional[str]`, optional (default = `None`)
        `"float16"`, `"bfloat16"` or `"int8"`: less precise, faster products in a frozen biLM.
    cache : `Optional[str]`, optional (default = `None`)
        `"memory"` or a directory: a frozen biLM in `"reset"` or `"primed"` runs once on a sentence,
        and epochs after the first only read. A directory is the training run's: an archive that is
        loaded makes none.

    # Raises

    `ConfigurationError`
        If the files do not exist or do not hold the biLM they should.
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
        if options is not None and options_file is not None:
            raise ConfigurationError(
                f"options and options_file {options_file!r} are both given, expected one of them"
            )
        if pretrained_file is not None and weight_file is not None:
            raise ConfigurationError(
                f"pretrained_file {pretrained_file!r} and weight_file {weight_file!r} are both "
                "given, expected one of them"
            )
        source = options if options is not None else options_file
        weights = pretrained_file if pretrained_file is not None else weight_file
        if module is None and is_loading():
            if not isinstance(source, dict):
                source = options_in_archive(source, weights)
            weights = None
            cache = cache if cache == "memory" else None
        elif module is None and weights is None and isinstance(source, dict):
            logger.warning(
                "The biLM has RANDOM weights: options are given without pretrained_file, and no "
                "archive is being loaded that would bring weights"
            )
        before = torch.get_rng_state()
        try:
            super().__init__(
                source,
                weights,
                num_output_representations,
                requires_grad=requires_grad,
                do_layer_norm=do_layer_norm,
                dropout=dropout,
                vocab_to_cache=vocab_to_cache,
                keep_sentence_boundaries=keep_sentence_boundaries,
                scalar_mix_parameters=scalar_mix_parameters,
                module=module,
                state=state,
                dtype=dtype,
                cache=cache,
            )
        except (ValueError, FileNotFoundError) as error:
            raise ConfigurationError(str(error)) from error
        if isinstance(self._elmo_lstm, BiLm) and not is_loading():
            # What is drawn next is what AllenNLP would draw next.
            torch.set_rng_state(before)
            if module is None:
                draw_as_allennlp(self._elmo_lstm.options)
