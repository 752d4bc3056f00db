"""
ELMo in spaCy: the component `elmo` and the architecture `elmo_plugin.ElmoMix.v1`, both found by
spaCy where this package is installed (setup.py's entry points).
"""

from spacy.tokens import Doc

# A Doc's layers: float32, shape `(mixture_size, num_tokens, embedding_dim)`.
if not Doc.has_extension("elmo"):
    Doc.set_extension("elmo", default=None)
