"""Pretraining of a biLM from plain text, without AllenNLP."""
