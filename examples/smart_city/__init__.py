"""The smart-city scene: a city's devices on a mesh of brokers, and a recorder that checks every delivery.

What happens to a publication: `scene` says who publishes what at which broker and who wants it; `devices` are the
MQTT clients that do it; `processes` runs the brokers between them; `recorder` knows what has to arrive and what
did. `run` puts the acts in order. `glance` is what can be seen of it at one moment, `screen` draws that (in a process
of its own, `display`), and `summary` is what remains. `__main__` is the command.
"""
