"""Stand-in for Simple Server Framework's package: what applications import of it.

The modules are Millrace's own; they have the names and values that applications use. What
serves an application is millrace_compat.ssf.
"""
