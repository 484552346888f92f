"""`yard tui`: jobs, replicas, curves and logs in a terminal, with the keys of the web console.

It draws with escape sequences and needs no further package, so that it is there after `pip install torchyard` on every
login node. Its pages are lists of lines; Textual's widgets, style sheets and Markdown would be an extra to install.

Modules in reading order:

- `command`: `yard tui`
- `app`: the stack of pages, keys, and when the screen is drawn
- `page`: what a page is
- `jobs_page`, `job_page`, `metrics_page`, `logs_page`, `text_page`: the pages
- `job_data`: a job's replicas and curves, as they change
- `live_jobs`: the jobs of a cluster, as they change
- `log_buffer`: the last lines of a job's logs
- `braille`: curves as text
- `list_table`: the rows of a list below their headings
- `scrolling`: a cursor in a list, and a window of it
- `styled_line`: text with colours, cut to a width and without control characters
- `terminal_keys`: keys from the bytes of a terminal
- `alternate_screen`: the terminal
"""
