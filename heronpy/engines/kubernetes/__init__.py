"""Kubernetes as an engine: a bare pod per submission, its join token in a secret, and ends as the kubelet
reports them.
"""
