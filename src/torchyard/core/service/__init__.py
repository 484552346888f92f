"""Where the traffic of services goes. Pure.

- `slices`: EndpointSlices of a service.
- `endpoints`: the older Endpoints object.
"""
