"""How fast the pages of the console are: `python -m bench.console`.

Modules in reading order:

- `server`: the built pages, with as many jobs and log lines as a measurement needs
- `__main__`: measures them in Chromium, against the budgets
"""
