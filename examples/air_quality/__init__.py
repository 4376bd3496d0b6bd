"""Air quality: stations, district services that sum up, and a city hall with a broker in its own program.

`air` is what the stations measure, `index` judges it, `windows` sums it up; `services` are the programs on the mesh;
`check` compares what arrived with what was measured; `picture` draws it.
"""
