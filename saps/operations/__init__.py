"""What operators do with clients: find, look at, disconnect, ban and follow them; and the record of who did what."""
