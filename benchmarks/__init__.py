"""Speed and memory, measured; nothing here is imported by the package."""
