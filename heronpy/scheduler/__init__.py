"""The scheduler: hosts the containers of one topology on an engine; locally, as processes."""
