"""What a training run needs beside AllenNLP's trainer: checkpoints, signals, random numbers."""
