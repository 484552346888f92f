"""The agent of one machine: keeps the wanted number of workers alive. Never imports torch itself."""
