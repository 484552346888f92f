"""The store: every change of every object in one SQLite table, and the current state in memory.

Read in this order:
- `draft`: who may change an object, before and after it is stored;
- `cache`: records (an object's bytes at a revision) and collections of them;
- `log`: the table on disk;
- `checkpointer`: SQLite's write-ahead log, moved into the database beside the writers;
- `watch`: store events, and the queue of one watcher;
- `errors`: what a write or a read of history raises;
- `store`: compare and swap, commit, publish.
"""
