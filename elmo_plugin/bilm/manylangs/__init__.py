"""What is computed in ELMoForManyLangs' models: another token layer before the same LSTM."""
