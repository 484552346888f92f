"""A worker's part in a world: its connection to the coordinator, its process group and its state.

Reading order:

- `state`: model, optimizer and all else that workers exchange.
- `state_header`: a state without its tensors, as JSON.
- `coordinator_client`: the worker's connection to the coordinator.
- `coordinator_wait`: how long a worker waits for a coordinator that does not answer.
- `process_group`: the collectives of one world.
- `runtime`: takes a worker from one world to the next.
"""
