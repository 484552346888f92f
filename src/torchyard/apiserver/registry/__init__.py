"""The resources that are served, and what a verb needs to serve them.

Read in this order:
- `catalog`: the served resources, built-in and custom, and their keys in the store;
- `conversion`: between a client's version of an object and the stored one;
- `lookup`: read-only access to the store by group and plural;
- `service_allocator`: cluster IPs and node ports of Services;
- `registry`: all of this in one object, with admission and the allocators.
"""
