"""The ELMo model, as defined in the paper."""
