"""Token layer of ELMoForManyLangs models, whose LSTM is the same as in other biLMs."""
