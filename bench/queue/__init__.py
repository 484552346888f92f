"""How fast the queues admit: the load of Kueue's own test (`load`), driven through the API (`__main__`)."""
