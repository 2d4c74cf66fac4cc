"""Files that others write while they are read: finding them, knowing them again, reading their whole lines."""
