"""Kubernetes as an engine: each submission is a bare pod with its join token in a secret."""
