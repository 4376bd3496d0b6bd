"""Publishers find subscribers: registrations, range calls, designed overlays, domains."""
