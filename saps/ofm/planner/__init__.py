"""Plans trees for many topics at once: compares planners (SDNPS 2016, section 4), and maintains trees through changes.

Needs numpy; numba (extra `research`) compiles the loops to machine code.
"""
