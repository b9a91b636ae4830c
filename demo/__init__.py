"""The demonstrations of `glidemq demo` and `glidemq pipeline demo`.

They are programs that use the library as an application does. The library itself does not need them.
"""
