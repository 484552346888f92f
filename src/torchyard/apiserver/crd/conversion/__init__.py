"""Conversion webhooks of CustomResourceDefinitions.

- `review`: a ConversionReview, and the check of what a webhook answers. Pure.
- `webhook`: calls the webhook of a definition for objects of the store, and for objects to be stored.
"""
