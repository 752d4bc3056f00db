"""Programs that made the tables and plots in `results/`; see README.md."""
