"""What cut-off brokers miss: the log, and how it is made up afterwards."""
