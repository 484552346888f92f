"""The wire: one client protocol with two transports, informers, work queues, events, leases. Knows no kind."""
