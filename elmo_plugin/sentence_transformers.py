"""ELMo as the first module of a `SentenceTransformer`."""

from collections.abc import Sequence
from typing import Any

import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.model.bilm import BiLmOutput
from elmo_plugin.bilm.model.tokens import check_batch, tokenized_sentence
from elmo_plugin.bilm.use.hub import ElmoHub

try:
    from sentence_transformers.base.modules import InputModule
except ModuleNotFoundError:
    # AllenNLP's `--include-package elmo_plugin` imports this module, even if sentence-transformers
    # is not installed.
    InputModule = torch.nn.Module


class ElmoTokens(InputModule):
    """
    First module of a `SentenceTransformer`. It computes a vector for each token, as a trainable
    scalar mix of a frozen biLM's layers. A `Pooling` module must follow.

    # Parameters

    options_file, weight_file : `Any`, optional (default = `"embedded"`, `None`)
        The biLM's files, as in `Elmo`. `options_file` may also be a dictionary of the options, as
        in the config of a saved model.
    state : `str`, optional (default = `"primed"`)
        Initial LSTM state of each text; see `BiLm`.
    """

    config_file_name = "elmo_config.json"
    config_keys: list[str] = ["options_file", "state"]

    def __init__(
        self,
        options_file: Any = "embedded",
        weight_file: str | None = None,
        state: str = "primed",
    ) -> None:
        super().__init__()
        self.hub = ElmoHub(options_file, weight_file, state=state)
        self.options_file = options_dict(self.hub.bilm.options)
        self.state = state

    def get_embedding_dimension(self) -> int:
        """Return the width of a token's vector. `Pooling` needs it."""
        return self.hub.bilm.get_output_dim()

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        """
        Return a dictionary of two tensors: `character_ids`, shape `(batch_size, num_tokens,
        num_characters)`, and `attention_mask`, shape `(batch_size, num_tokens)`. A text is a
        string, which is split at white space, or a list of tokens. `prompt` is added before the
        text.
        """
        check_batch(inputs)
        prompt = prompt or ""
        tokens = [
            (prompt + text).split()
            if isinstance(text, str)
            else [*prompt.split(), *tokenized_sentence(text, number)]
            for number, text in enumerate(inputs)
        ]
        ids = self.hub.bilm.batch_to_ids(tokens)
        ids = torch.nn.functional.pad(ids, (0, 0, 0, int(ids.shape[1] == 0)))
        mask = (ids > 0).any(dim=-1).long()
        mask[:, 0] = 1  # `Pooling` takes maxima: an empty text counts as a token of zeros
        return {"character_ids": ids, "attention_mask": mask}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """
        Add the tokens' vectors to the features of a batch of texts.

        # Parameters

        features : `Dict[str, Any]`
            Output of `preprocess`.

        # Returns

        `Dict[str, Any]`
            The features and `token_embeddings`, shape `(batch_size, num_tokens, embedding_dim)`.
        """
        output = BiLmOutput.of(self.hub.bilm(features["character_ids"])).tokens()
        return {**features, "token_embeddings": self.hub.mix(output.layers)}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the config, which includes the biLM's options, and the weights to a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> "ElmoTokens":
        """Load a folder that `save` has written, or a model of the Hugging Face hub."""
        names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        where = {name: kwargs[name] for name in names if name in kwargs}
        module = cls(**cls.load_config(model_name_or_path, **where))
        return cls.load_torch_weights(model_name_or_path, model=module, **where)
