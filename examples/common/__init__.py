"""What the example applications share: the program around a run, brokers as processes, MQTT clients, drawing.

Broker processes are those of `examples.smart_city.processes`.
"""
