"""A `TextFileSpout` as the input of a batch run: the spout's files become a pipeline, and its lines become units."""

from __future__ import annotations

from msgspec.structs import replace

from heronpy.connectors.textfiles.textfilespout import TextFileOptions
from heronpy.growing.patterns import parse
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.options import SEPARATOR, UnitOptions
from heronpy.ingest.outputs.base import Output


def text_options(
    pipeline: str, given: TextFileOptions, ledger: str, output: Output, config: Config, run: str
) -> UnitOptions:
    """Return the options of the pipeline that reads the files of a spout up to their current ends.

    Raises ValueError if a pattern cannot match a file. All patterns form one pipeline, because a file may
    match several.
    """
    for path in given.paths:
        parse(path)
    logs = SEPARATOR.join(given.paths)
    return UnitOptions(
        pipeline,
        logs,
        ledger,
        output,
        replace(config, pattern=logs, place=output.table, on_bad="fail"),
        True,
        given.encoding,
        given.decode_errors,
        given.line_bytes_max,
        given=frozenset(Config.__struct_fields__) | {"line_bytes_max"},
        run=run,
        header_lines=given.skip_header,
        # A spout that does not follow its files reads them once as they are.
        whole=not given.follow,
    )
