"""The same packets to SAPS, Mosquitto and rumqttd: what their subscribers get is compared."""
