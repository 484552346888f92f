"""Text the way Go writes it, for messages that mirror a real server's.

Read in this order:
- `values`: the names of JSON types and how numbers are printed;
- `regexp`: regular expressions in Go's syntax, run by RE2.
"""
