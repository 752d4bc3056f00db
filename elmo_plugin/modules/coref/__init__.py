"""Parts of the coreference model."""
