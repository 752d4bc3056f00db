"""Folder that `elmo-plugin run` puts first in the PYTHONPATH of a program's child processes."""
