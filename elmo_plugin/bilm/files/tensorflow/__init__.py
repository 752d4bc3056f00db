"""TensorFlow's checkpoints, read without TensorFlow."""
