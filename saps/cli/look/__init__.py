"""Commands that ask a broker: brokers, topics, trace, top."""
