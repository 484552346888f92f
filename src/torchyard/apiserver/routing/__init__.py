"""From a request to the handler that answers it.

Read in this order:
- `route`: the URL grammar;
- `router`: authorization, dispatch, and errors as Status responses.
"""
