"""Pages and plots that commands write: predictions, neighbours, learned layer weights."""
