"""One verb per module. A verb takes the registry and the request context; it returns a record or raises a StatusError.

Read in this order:
- `get`, `list` (with `continue_token`), `watch`, with `selection`: label and field selectors;
  `converted_watch`: with a conversion webhook;
- `create`, with `metadata`: what the server sets in an object's metadata;
- `update`: the path of every change; `patch` and the subresources use it too;
- `delete`, `delete_collection`;
- `pod_template_cache`: create, for pods that are alike.
"""
