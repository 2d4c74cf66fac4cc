"""From a topology that was loaded, or is stored, to one that runs, or to nothing at all. Nothing is printed."""
