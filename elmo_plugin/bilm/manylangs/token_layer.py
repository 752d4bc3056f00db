"""
Token layer of ELMoForManyLangs: word vectors in addition to the char-CNN.

https://github.com/HIT-SCIR/ELMoForManyLangs, elmoformanylangs/modules/token_embedder.py,
`ConvTokenEmbedder`, and frontend.py, version 0.0.4.post2 on PyPI.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

from elmo_plugin.bilm.kernels.backend import backend, plain_affines, plain_class
from elmo_plugin.bilm.manylangs import code_points
from elmo_plugin.bilm.manylangs.lexicon import Lexicon
from elmo_plugin.bilm.manylangs.many_langs_options import ManyLangsOptions
from elmo_plugin.bilm.model.char_cnn import CharCnn


@plain_class
class ManyLangsTokenLayer(CharCnn):
    """
    Context-independent token vectors `V w + P c + b` of an ELMoForManyLangs model: `w` is the
    word's vector, in models that have one, `c` the output of the char-CNN's highway layers, and
    `V`, `P` and `b` are learned. The `state_dict` has the dictionaries, so `lexicon` may be loaded
    later.
    """

    greatest_id = code_points.END
    boundaries = (code_points.BEGIN_OF_SENTENCE, code_points.END_OF_SENTENCE)
    token_row = staticmethod(code_points.token_row)

    def __init__(self, options: ManyLangsOptions, lexicon: Lexicon | None = None) -> None:
        super().__init__(options, options.num_embeddings)
        if self._projection is None:  # `CharCnn` omits it for equal widths; these models have one
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
        """Dictionaries of characters and words, or `None` before they are loaded."""
        return self._lexicon

    @lexicon.setter
    def lexicon(self, lexicon: Lexicon | None) -> None:
        self.forget_derived()
        self._lexicon = lexicon
        if lexicon is not None:
            self.padding_id = lexicon.padding + 1

    @property
    def word_vectors(self) -> torch.nn.Parameter | None:
        """Word vectors of shape `(num_words, word_dim)`, or `None`."""
        return self._word_vectors

    def padding_vector(self) -> torch.Tensor:
        """Return zeros: these models know no padding tokens."""
        return self.char_embedding.new_zeros(1, self.output_dim)

    def get_extra_state(self) -> torch.Tensor:
        """Return the dictionaries as a tensor of bytes, for `state_dict`."""
        if self._lexicon is None:
            return torch.zeros(0, dtype=torch.uint8)
        return self._lexicon.to_tensor()

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Restore the dictionaries from the tensor in a `state_dict`."""
        self.lexicon = Lexicon.from_tensor(state) if len(state) else None

    def rows(
        self, character_ids: torch.Tensor, widths: Sequence[int] | None = None
    ) -> torch.Tensor:
        """
        Compute the vectors of rows of code points, see `CharCnn.forward`. Raise a `ValueError` if
        they are bytes instead, or no dictionary is loaded.
        """
        if self._lexicon is None:
            raise ValueError("this biLM has no dictionary yet, expected one with its weights")
        rows = character_ids.cpu().numpy()
        if (rows[:, 0] != code_points.BEGIN_OF_WORD).any():
            raise ValueError(
                "inputs are ids of bytes, expected code points: BiLm.batch_to_ids gives them, in a "
                'config the indexer {"type": "elmo_characters", "code_points": true}'
            )
        # Raise the ids by 1, because row 0 of the embeddings belongs to the padding token.
        characters = torch.from_numpy(self._lexicon.character_ids(rows) + 1)
        tokens = super().rows(characters.to(character_ids.device))
        if self._word_vectors is None:
            return tokens
        words = torch.from_numpy(self._lexicon.word_ids(rows)).to(character_ids.device)
        vectors = functional.embedding(words, self._word_vectors)
        affines = plain_affines([(self._word_projection, torch.nn.Linear, False)])
        if affines is None:
            return tokens + self._word_projection(vectors)
        return tokens + backend().linear(vectors, affines[0].weight, self.precision)
