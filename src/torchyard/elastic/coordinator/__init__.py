"""The coordinator: decides which workers form the world, and keeps the ledger. It never imports torch.

Reading order:

- `membership`: which workers form the world; pure.
- `admission`: which connections belong to the job; pure.
- `lease`: how long a worker may be silent; pure.
- `event_line`: prints events in pods.
- `ledger_writer`: writes the ledger from a thread of its own.
- `peer`: one connection.
- `handshakes`: the connections that have not authenticated yet.
- `trainings`: the trainings of a program that has several.
- `coordinator`: turns messages and timers into observations for `membership`, and executes its actions.
- `http`: status, events, metrics, scale and stop over HTTP.
- `server`: accepts connections and hands them to `coordinator` or `http`.
"""
