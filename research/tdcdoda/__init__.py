"""The TD-CD-ODA paper's tables (2017), recomputed."""
