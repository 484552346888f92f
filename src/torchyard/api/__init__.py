"""Ground: what things are called and what is valid. Pure data and functions; imports no layer above."""
