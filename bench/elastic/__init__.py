"""The bars of the elastic runtime, one command each: `python -m bench.elastic C1` prints figures, target and peer."""
