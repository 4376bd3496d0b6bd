"""Trees for many topics at once: planners compared (SDNPS 2016, section 4), and trees that live on as things change.

Needs numpy; numba (extra `research`) makes the loops machine code.
"""
