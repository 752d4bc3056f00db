"""Classes and functions that users call."""
