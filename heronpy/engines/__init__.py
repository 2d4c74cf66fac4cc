"""The engines that place containers: clusters that somebody already keeps."""
