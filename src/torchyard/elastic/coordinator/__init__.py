"""The coordinator: decides who is in the world, and keeps the ledger. Never imports torch."""
