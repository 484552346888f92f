"""Where the traffic of services goes. Pure.

- `slices`: EndpointSlices of a service.
- `endpoints`: the older Endpoints object.
- `mirror`: EndpointSlices of Endpoints that users write.
- `service_cidr`: the ranges of service addresses.
"""
