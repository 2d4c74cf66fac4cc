"""Apache Pulsar as a source."""
