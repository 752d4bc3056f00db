"""Comparison of two embeddings in spaCy's NER: ELMo, and spaCy's own."""
