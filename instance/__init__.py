"""An instance: one task of a spout or bolt in its own process."""
