"""Filters that select jobs, in the same language for Python and the command line.

`grammar` turns the text into terms, `values` and `fields` compile the terms, and `filter` checks them. `plan` lists the
places that a search must read.
"""
