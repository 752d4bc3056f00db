"""
One step of pretraining, whole, without AllenNLP: streams -> biLM -> softmax -> loss -> export.
"""
