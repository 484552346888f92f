"""The sockets in front of the server: a short way for the requests everybody makes, aiohttp for all others."""
