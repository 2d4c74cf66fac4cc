"""Files that grow while they are read: finding and recognising them, and reading their complete lines."""
