"""The network as the controller knows it: topology, links, capacities."""
