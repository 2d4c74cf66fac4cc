"""An instance: one task of a spout or bolt in a process of its own."""
