"""A biLM in pretraining as an AllenNLP model: what configs name, and what an archive evaluates."""

from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model

from elmo_plugin.bilm.model.lstm import LstmState
from elmo_plugin.bilm.training.evaluation import figures
from elmo_plugin.bilm.training.language_model import make_language_model
from elmo_plugin.bilm.training.streams import BatchPair
from elmo_plugin.data.bilm_vocabulary import word_vocabulary
from elmo_plugin.modules.archived_bilm import is_loading, options_in_archive


@Model.register("bilm_language_model", exist_ok=True)
class BilmLanguageModel(Model):
    """
    The biLM in pretraining (Peters et al. 2018, section 3.1; bilm-tf's `LanguageModel`). It is
    trained by the trainer `bilm_pretraining`; `forward` evaluates.

    # Parameters

    vocab : `Vocabulary`
        Made by `bilm_words`.
    options : `Union[str, Dict[str, Any]]`
        The biLM's sizes: the content of an `options.json`, its path or URL, or a name (`small`,
        `original`, ...).
    pretrained_file : `Optional[str]`, optional (default = `None`)
        A `weights.hdf5` to begin with. AllenNLP drops this key when it loads an archive, which
        brings the weights itself.
    softmax : `Optional[Dict[str, Any]]`, optional (default = `None`)
        `num_samples`, negatives a training batch shares (8192 in the paper's biLM; the full softmax
        if not given); `sparse`, whether gradients are sparse tensors, for large vocabularies and an
        optimizer that takes them (Adagrad); `pretrained_file`, a `softmax.hdf5` to begin with.
    dropout : `float`, optional (default = `0.1`)
        See `LanguageModel`.
    gradient_scale : `float`, optional (default = `1.0`)
        What gradients are multiplied with; the loss that is reported stays the mean. bilm-tf:
        `num_steps`, which makes its clipping bite that much earlier.
    dtype : `Optional[str]`, optional (default = `None`)
        `"bfloat16"` for mixed precision in training, `"auto"` for it where it is the faster; see
        `LanguageModel`.
    frozen_steps : `int`, optional (default = `0`)
        Steps at first in which the softmax alone trains: for a biLM with pretrained weights on text
        with another vocabulary.

    # Raises

    `ConfigurationError`
        If files do not exist or do not fit.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        options: Union[str, Dict[str, Any]],
        pretrained_file: Optional[str] = None,
        softmax: Optional[Dict[str, Any]] = None,
        dropout: float = 0.1,
        gradient_scale: float = 1.0,
        dtype: Optional[str] = None,
        frozen_steps: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.words = word_vocabulary(vocab)
        if pretrained_file is None and not isinstance(options, dict) and is_loading():
            options = options_in_archive(options)
        try:
            self.language_model = make_language_model(
                self.words, options, pretrained_file, softmax, dropout, dtype
            )
        except (ValueError, TypeError, FileNotFoundError) as error:
            raise ConfigurationError(str(error)) from error
        self.gradient_scale = gradient_scale
        self.frozen_steps = frozen_steps
        self._states: Optional[Tuple[LstmState, LstmState]] = None
        self._losses: List[float] = [0.0, 0.0, 0.0]

    def forward(self, batch: BatchPair, starts: bool = False) -> Dict[str, torch.Tensor]:
        """
        # Parameters

        batch : `BatchPair`
            Both directions' next tokens.
        starts : `bool`, optional (default = `False`)
            Whether the streams begin here: the LSTMs start at zero.

        # Returns

        `Dict[str, torch.Tensor]`
            Scalars in nats per word: `loss`, the mean of `forward_loss` and `backward_loss`.

        # Raises

        `ConfigurationError`
            In training.
        """
        if self.training:
            raise ConfigurationError(
                'a bilm_language_model is trained by "trainer": {"type": "bilm_pretraining"}, '
                "found another"
            )
        output = self.language_model(batch, None if starts else self._states)
        self._states = output.states
        both = (output.forward_loss.item(), output.backward_loss.item(), 1.0)
        self._losses = [total + one for total, one in zip(self._losses, both)]
        return {
            "loss": output.loss,
            "forward_loss": output.forward_loss,
            "backward_loss": output.backward_loss,
        }

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        `forward_perplexity` and `backward_perplexity` per word, and `perplexity`, their geometric
        mean, since the last `reset`.
        """
        forward, backward, count = self._losses
        if reset:
            self._losses = [0.0, 0.0, 0.0]
        found = figures(forward / max(1.0, count), backward / max(1.0, count), sampled=False)
        return {name: value for name, value in found.items() if name != "loss"}
