"""Custom resources: CustomResourceDefinitions checked and compiled, and the objects they define.

Everything here is a pure function of the definition and the object; the API server's verbs call it. It must not know
the store, HTTP, or any built-in kind.
"""
