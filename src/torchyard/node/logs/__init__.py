"""Container logs: `reader` serves what the shims write; `progress` reports the progress that trainings print."""
