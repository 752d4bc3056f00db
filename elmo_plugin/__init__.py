"""ELMo for AllenNLP: use it in a config, and train it from plain text."""

__version__ = "0.1.0"
