"""The shapes of all kinds: built-in ones from compact data, custom ones from their CRD."""
