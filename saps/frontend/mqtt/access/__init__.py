"""Who may attach to this broker, and what each client may publish and receive."""
