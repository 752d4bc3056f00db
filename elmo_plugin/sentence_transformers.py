"""ELMo as the first module of a `SentenceTransformer`."""

from collections.abc import Sequence
from typing import Any

import torch

from elmo_plugin.bilm.files.options import options_dict
from elmo_plugin.bilm.use.hub import ElmoHub

try:
    from sentence_transformers.base.modules import InputModule
except ModuleNotFoundError:
    # AllenNLP's `--include-package elmo_plugin` imports every module, wanted or not.
    InputModule = torch.nn.Module


class ElmoTokens(InputModule):
    """
    A mix of the biLM's layers for each token, which trains; the biLM does not.

    # Parameters

    options_file, weight_file : `Any`, optional (default = `"embedded"`, `None`)
        The biLM's files, as in `Elmo`; or options whose weights a saved model brings.
    state : `str`, optional (default = `"primed"`)
        See `BiLm`.
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

    def train(self, mode: bool = True) -> "ElmoTokens":
        """
        As PyTorch's, but nothing where the mode stays: `encode` sets it at every call, and the biLM
        would forget each time what it has derived of its weights.
        """
        return self if mode == self.training else super().train(mode)

    def get_embedding_dimension(self) -> int:
        """For `Pooling`."""
        return self.hub.bilm.get_output_dim()

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        """Texts, split on white space, to character ids and a mask."""
        tokens = [((prompt or "") + text).split() for text in inputs]
        ids = self.hub.bilm.batch_to_ids(tokens)
        return {"character_ids": ids, "attention_mask": (ids > 0).any(dim=-1).long()}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """
        # Parameters

        features : `Dict[str, Any]`
            What `preprocess` gives.

        # Returns

        `Dict[str, Any]`
            With `token_embeddings`, shape `(batch_size, num_tokens, embedding_dim)`.
        """
        layers = [one[:, 1:-1] for one in self.hub.bilm(features["character_ids"])["activations"]]
        mixed = self.hub.mix(layers) * features["attention_mask"].unsqueeze(-1)
        return {**features, "token_embeddings": mixed}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Options and weights, into one folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> "ElmoTokens":
        """What `save` wrote, from disk or the library's hub."""
        names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        where = {name: kwargs[name] for name in names if name in kwargs}
        module = cls(**cls.load_config(model_name_or_path, **where))
        return cls.load_torch_weights(model_name_or_path, model=module, **where)
