"""The state of the mesh for operators: reports, live page, network, traces, drain."""
