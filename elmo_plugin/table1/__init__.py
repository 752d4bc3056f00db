"""
Table 1 of Peters et al. 2018 by one command: `tasks` says what its rows are, `plan` which runs they
take, `runner` trains them, each in a process of `one_run`, `item_scores` and `bootstrap` judge the
difference, `report` and `figures` show it.
"""
