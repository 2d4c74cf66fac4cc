"""Kubernetes as an engine: a bare pod per submission with its join token in a secret; the kubelet confirms its end."""
