"""Sources that read text files line by line."""
