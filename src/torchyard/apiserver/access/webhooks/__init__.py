"""Admission by others: webhooks that change or refuse writes, and policies that refuse them by expressions.

`dispatch.Webhooks` and `policies.Policies` take what is asked of the server (`asked.Asked`) and answer with the object
and warnings, or raise the refusal. They need nothing of the server but a few look-ups; both are quick to say that there
is nothing to do.
"""
