"""The scheduler: runs the containers of one topology on an engine, or as processes of this machine."""
