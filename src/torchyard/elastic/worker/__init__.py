"""The training loop of a worker.

Reading order:

- `settings`, `training`: the settings of one training, and everything that it consists of.
- `training_end`: how a training ends, and what follows it.
- `startup_check`, `data_check`: refuse what would give a wrong or irreproducible model, before the first step.
- `program_state`, `plain_values`, `standard_objects`: the variables of a program that a step uses.
- `unchanged`, `loop_body`: check the same while training, and what the program's loop keeps.
- `loop_source`, `program_source`: what such a variable decides, from the source of the loop.
- `trainer`: computes, reduces and applies one step after the other.
- `own_loop`, `epoch_loop`: the same for programs that keep their own loop, over all batches or over epochs.
- `hosted_loop`: the same for frameworks, which apply updates themselves.
- `progress_line`: prints how far the training is, in pods.
- `leaving`: the signals of a worker.
- `freed_memory`: keeps freed memory for the next micro-batch.
- `update`: turns the mean gradient into new parameters.
- `data_source`: the dataset, or what is taken over from a `DataLoader`.
- `loader`, `loader_process`: load micro-batches ahead of time.
- `seeding`: seeds every generator of random numbers.
- `streams`: a dataset whose sources can only be read in sequence.
- `shards`, `streaming`: streaming datasets of shards, of one's own or of other libraries.
"""
