"""The spouts and bolts under test; they know nothing of what wraps them."""
