"""Parts of the coreference model, each of one subject."""
