"""Frames and the codecs of their payloads. Pure."""
