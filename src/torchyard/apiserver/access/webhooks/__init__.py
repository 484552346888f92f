"""Admission by others: webhooks that change or refuse writes, and policies that refuse them by expressions.

`Webhooks` and `Policies` take what is asked of the server (`Asked`) and answer with the object and warnings, or raise
the refusal. They need nothing of the server but a few look-ups; both are quick to say that there is nothing to do.
"""

from torchyard.apiserver.access.webhooks.asked import Asked
from torchyard.apiserver.access.webhooks.dispatch import Webhooks
from torchyard.apiserver.access.webhooks.policies import Policies

__all__ = ["Asked", "Policies", "Webhooks"]
