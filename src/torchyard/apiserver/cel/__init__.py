"""The Common Expression Language as a Kubernetes API server speaks it: parse, check types, compile, run in bounds.

An expression is compiled once, against the types of its variables, into nested Python functions; running it costs a
few microseconds and never more than its budget. The words of its errors are cel-go's, since users meet them.
"""
