"""What is computed: ELMo as the paper writes it."""
