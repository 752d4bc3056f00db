"""Token layer of ELMoForManyLangs models; their LSTM is that of other biLMs."""
