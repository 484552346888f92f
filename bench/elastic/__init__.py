"""The benchmarks of the elastic runtime: `python -m bench.elastic C1` prints figures, target and other systems.

Reading order:

- `common`: the training program, its step log, and the output.
- `recovery`: how long training stops when the world changes (C1, C4, C5, C6, C9, C11, C13).
- `overhead`: step time against plain DDP, and checkpoints and the comparison of states (C2, C3, C10, C16).
- `coordination`: the coordinator alone (C8, C12, C15).
- `exactly_once`: hundreds of random kills (C7).
- `frameworks`: Hugging Face's Trainer and Lightning with and without the runtime, and under kills (C17, C18).
- `tutorial`: ElasticDL's tutorial (C14).
- `peers`: torchrun and torchft for comparison.
- `gpu`: a machine with a GPU (G1 to G6), and C11, C16, C17 and C18 there.
"""
