"""Service accounts and the secrets that hold their tokens. Pure.

- `secrets`: which account a token secret belongs to, and what it has to hold.
"""
