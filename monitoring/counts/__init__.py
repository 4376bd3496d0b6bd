"""Takes in the brokers' counts, checks them and sums them by window. Also generates synthetic traffic for tests."""
