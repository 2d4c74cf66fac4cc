"""What spouts and bolts have in common."""
