"""The agent of one machine: keeps the target number of workers alive. The agent itself never imports torch.

Reading order:

- `agent`: how many workers run, and when one is replaced.
- `spawner`: starts workers, from the zygote where possible.
- `fork_messages`: the messages between the spawner and the zygote.
- `zygote`: a process that has imported torch and forks workers.
- `pod`: the agent of a pod, which runs exactly one worker.
"""
