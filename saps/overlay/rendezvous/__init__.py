"""The rendezvous of publishers and subscribers: registrations, range calls, designed overlays, OpenFlow domains."""
