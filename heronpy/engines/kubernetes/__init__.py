"""Kubernetes as an engine: a bare pod per submission, its join token in a secret, ends as the kubelet reports them."""
