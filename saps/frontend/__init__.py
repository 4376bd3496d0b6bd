"""Where devices and other brokers attach: MQTT (and later Web)."""
