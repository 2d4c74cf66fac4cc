"""Files that other programs write while they are read: finding and recognising them, reading their complete lines."""
