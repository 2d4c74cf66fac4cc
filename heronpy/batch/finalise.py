"""The end of a run: sinks get their rows, the savepoint is written, then the record. Each step may be repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from heronpy.api.user_code import load_class
from heronpy.batch import exchange
from heronpy.batch.record import RunState
from heronpy.batch.run import Run
from heronpy.batch.stages import Stage
from heronpy.batch.steps import Steps
from heronpy.common.version import VERSION
from heronpy.connectors.unit_output import unit_output_of
from heronpy.ingest.boundary import followed_state
from heronpy.plan.component_config import component_config, parallelism_of
from heronpy.proto import components_of
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, KeyedState, Metadata, Segment, TaskSnapshot
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.locations import location_of, open_store
from heronpy.storage.objects.url import place_of

#: A run has one checkpoint.
NUMBER = 1
_VERSION = 1
