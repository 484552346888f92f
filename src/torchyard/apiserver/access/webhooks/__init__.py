"""Dynamic admission: webhooks that change or reject writes, and ValidatingAdmissionPolicies.

`WebhookDispatcher` and `PolicyValidator` take the `VersionedAttributes` of a write and return the object and warnings,
or raise the denial. They depend on the server only through a few callables, and return at once when nothing is
configured.

Read in this order:

- `versioned_attributes`: a write as webhooks and policies see it.
- `matching`: which writes a webhook or policy applies to.
- `dispatch`: calls the webhooks and applies their patches.
- `admission_review`, `response_decoder`: encode and decode AdmissionReviews.
- `client`: the HTTPS client for webhooks.
- `policies`, `policy_evaluation`, `policy_decision`: ValidatingAdmissionPolicies and their bindings.
- `expressions`: compiles and evaluates the CEL expressions, match conditions included.
- `strategies`: checks the expressions when a configuration or policy is written.
"""
