"""Controllers: informer caches in, core decisions, writes out."""
