"""The brokers' counts: files taken in, checked, summed by window; made-up traffic for tests."""
