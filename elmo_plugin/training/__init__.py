"""Training with AllenNLP: checkpoints, signals, random state, pretraining."""
