"""Kubernetes as an engine: a bare pod per submission, its ticket in a secret, ends as the kubelet reports them."""
