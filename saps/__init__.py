"""SAPS: SDN-aware publish/subscribe.

Devices speak MQTT to the nearest broker (`saps.frontend`); brokers form a Skip Graph overlay without a master
(`saps.overlay`) over which a publication travels to exactly the brokers that have a matching subscriber.
"""

__version__ = "0.1.0"
