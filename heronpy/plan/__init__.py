"""What runs where, as pure data: logical, packing and physical plans, groupings and differences."""
