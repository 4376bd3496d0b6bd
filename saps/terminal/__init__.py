"""What operators type: `saps brokers`, `topics`, `trace` and `top` ask a broker's Web port; `doctor` looks around."""
