"""The Common Expression Language (CEL) with the Kubernetes extensions: parse, type-check, compile, evaluate.

An expression is compiled once, against the types of its variables, into nested Python functions. One evaluation takes
a few microseconds and never exceeds its cost budget. Error messages are cel-go's, because users search for them.

Read in this order:

- `program`: `compile_expression` and the `Program` it returns; callers use only this and `library`.
- `lexer`, `parser`, `macros`, `ast`: from the text to the expression tree, with macros expanded.
- `types`: CEL types, and type inference by substitution.
- `functions`: declarations of functions and their overloads.
- `compiler`, `literal_checks`: the type checker, which also builds the Python functions.
- `runtime`, `comprehensions`: those Python functions.
- `values`: CEL values, equality and order.
- `cost_budget`, `errors`: the cost limit and the exceptions.
- `library/`: the standard functions and those of Kubernetes.
"""
