"""
The token layer of ELMoForManyLangs: words' own vectors beside the char-CNN.

https://github.com/HIT-SCIR/ELMoForManyLangs, elmoformanylangs/modules/token_embedder.py,
`ConvTokenEmbedder`, and frontend.py, as in 0.0.4.post2 on PyPI.
"""

import torch
from torch.nn import functional

from elmo_plugin.bilm.manylangs import code_points
from elmo_plugin.bilm.manylangs.lexicon import Lexicon
from elmo_plugin.bilm.manylangs.options import ManyLangsOptions
from elmo_plugin.bilm.model.char_cnn import CharCnn


class ManyLangsTokenLayer(CharCnn):
    """
    Context-independent token vectors `V w + P c + b`: `w` is the word's own vector, `c` what the
    highways give. The model's dictionaries are part of its `state_dict`.

    # Parameters

    options : `ManyLangsOptions`
        The sizes.
    lexicon : `Lexicon | None`, optional (default = `None`)
        The dictionaries; `None` where a `state_dict` will bring them.
    """

    greatest_id = code_points.END
    boundaries = (code_points.BEGIN_OF_SENTENCE, code_points.END_OF_SENTENCE)
    token_row = staticmethod(code_points.token_row)

    def __init__(self, options: ManyLangsOptions, lexicon: Lexicon | None = None) -> None:
        super().__init__(options, options.num_embeddings)
        if self._projection is None:  # as many filters as numbers in a vector, and yet a projection
            self._projection = torch.nn.Linear(options.num_filters, options.projection_dim)
        self._word_vectors: torch.nn.Parameter | None = None
        if options.word_dim:
            self._word_vectors = torch.nn.Parameter(
                torch.zeros(options.num_words, options.word_dim).uniform_(-0.25, 0.25)
            )
            self._word_projection = torch.nn.Linear(
                options.word_dim, options.projection_dim, bias=False
            )
        self.lexicon = lexicon

    @property
    def lexicon(self) -> Lexicon | None:
        """The dictionaries."""
        return self._lexicon

    @lexicon.setter
    def lexicon(self, lexicon: Lexicon | None) -> None:
        self._lexicon = lexicon
        if lexicon is not None:
            self.padding_id = lexicon.padding + 1

    @property
    def word_vectors(self) -> torch.nn.Parameter | None:
        """Shape `(num_words, word_dim)`, where words have vectors of their own."""
        return self._word_vectors

    @property
    def word_projection(self) -> torch.nn.Linear:
        """From a word's vector to its part of the token's, where there is one."""
        return self._word_projection

    def get_extra_state(self) -> torch.Tensor:
        """The dictionaries, for PyTorch's `state_dict`."""
        if self._lexicon is None:
            return torch.zeros(0, dtype=torch.uint8)
        return self._lexicon.to_tensor()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """From a `state_dict`."""
        self.forget_derived()
        self.lexicon = Lexicon.from_tensor(state) if len(state) else None

    def forward(self, character_ids: torch.Tensor) -> torch.Tensor:
        """
        # Parameters

        character_ids : `torch.Tensor`
            Code points, int64, shape `(num_rows, num_characters)`: real tokens only, no padding
            tokens.

        # Returns

        `torch.Tensor`
            Shape `(num_rows, projection_dim)`.

        # Raises

        `ValueError`
            If they are another biLM's character ids, or there is no dictionary yet.
        """
        if self._lexicon is None:
            raise ValueError("this biLM has no dictionary yet, expected one with its weights")
        rows = character_ids.cpu().numpy()
        if (rows[:, 0] != code_points.BEGIN_OF_WORD).any():
            raise ValueError(
                "inputs are ids of bytes, expected code points: BiLm.batch_to_ids gives them, in a "
                'config the indexer {"type": "elmo_characters", "code_points": true}'
            )
        # Row 0 of the embeddings is the padding token's.
        characters = torch.from_numpy(self._lexicon.character_ids(rows) + 1)
        tokens = super().forward(characters.to(character_ids.device))
        if self._word_vectors is None:
            return tokens
        words = torch.from_numpy(self._lexicon.word_ids(rows)).to(character_ids.device)
        return tokens + self._word_projection(functional.embedding(words, self._word_vectors))
