"""Benchmarks of speed and memory. `elmo_plugin` imports nothing from here."""
