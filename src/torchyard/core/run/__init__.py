"""What a person who waits for a job wants to know: is it done, how did it end, what holds it up, how far is it."""
