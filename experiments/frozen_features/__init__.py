"""Comparison of frozen ELMo with other frozen vectors, as the input of a linear tagger."""
