"""What a controller of many trees costs, and how soon it has mended them."""
