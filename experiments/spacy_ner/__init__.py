"""Comparison of spaCy's NER with ELMo and with spaCy's own embedding."""
