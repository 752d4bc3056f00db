"""
One command that trains the models of Table 1 of Peters et al. 2018, with and without ELMo. `tasks`
has the rows of the table and `plan` the training runs. `runner` starts a process of `one_run` for
each run. `item_scores` tests differences for significance. `results` reads and writes files, and
`report` and `figures` write tables and plots.
"""
