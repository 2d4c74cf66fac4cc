"""The functional API: a streamlet is a source, or the result of applying a function or a window to streamlets.

    builder = Builder()
    builder.new_source(read).flat_map(str.split).map(lambda w: (w, 1)) \\
        .reduce_by_key_and_window(WindowConfig.create_tumbling_window(10), operator.add).log()
    Runner().run("word-count", Config(), builder)

Each operator becomes one bolt whose single output stream is "output" with the field "_output_".
Functions are pickled with cloudpickle and sent to their tasks. Under ATLEAST_ONCE, sources replay failed elements
and every operator anchors what it emits.
"""

from __future__ import annotations

from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from heronpy.streamlet.context import Context
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.resources import Resources
from heronpy.streamlet.runner import Runner
from heronpy.streamlet.streamlet import Streamlet
from heronpy.streamlet.transformoperator import TransformOperator
from heronpy.streamlet.window import Window
from heronpy.streamlet.windowconfig import WindowConfig

__all__ = [
    "Builder",
    "Config",
    "Context",
    "Generator",
    "KeyedWindow",
    "Resources",
    "Runner",
    "Streamlet",
    "StreamletError",
    "TransformOperator",
    "Window",
    "WindowConfig",
]
