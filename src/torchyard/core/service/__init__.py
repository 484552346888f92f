"""Where the traffic of services goes. Pure.

- `slices`: EndpointSlices of a service.
- `endpoints`: the older Endpoints object.
- `service_cidr`: the ranges of service addresses.
"""
