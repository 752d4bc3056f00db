"""Loads the plugin before any test module: it imports allennlp-models first, whose registrations do
not allow a second one of the same name."""

import elmo_plugin.plugin  # noqa: F401
