"""How it is computed here: the definition, and what is faster on this machine."""
