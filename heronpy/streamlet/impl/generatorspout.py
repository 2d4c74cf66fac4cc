"""Builder.new_source with a Generator object."""

from __future__ import annotations

from typing import Any

from heronpy.api.state.state import HashMapState
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.generator import Generator
from heronpy.streamlet.impl.contextimpl import ContextImpl
from heronpy.streamlet.impl.streamletboltbase import part_of
from heronpy.streamlet.impl.streamletspoutbase import ElementSpout
from heronpy.streamlet.streamlet import Streamlet


class GeneratorSpout(ElementSpout):
    """Emits what the Generator gives."""

    GENERATOR = "generator"
    SOURCE = GENERATOR

    def open_source(self, config: dict[str, Any], context: Any) -> None:
        """Set the generator up."""
        self._generator: Generator = part_of(config, self.GENERATOR, self)
        state = HashMapState() if self.state is None else self.state
        self._generator.setup(ContextImpl(context, state, self._emit_element))

    def next_element(self) -> Any:
        """Ask the generator."""
        return self._generator.get()

    def pre_save(self, checkpoint_id: str) -> None:
        """Have the generator put its position into the state."""
        # A Generator by its methods only, made for an older release, has no such method.
        save = getattr(self._generator, "pre_save", None)
        if save is not None:
            save(checkpoint_id)


class GeneratorStreamlet(Streamlet):
    """The streamlet of a Generator."""

    def __init__(self, generator: Generator) -> None:
        super().__init__()
        if not isinstance(generator, Generator):
            raise StreamletError(
                f"a generator source must be a Generator, not {type(generator).__name__}"
            )
        self._generator = generator

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_spout(
            self._claim_name("generator", stage_names),
            GeneratorSpout,
            par=self.get_num_partitions(),
            config={GeneratorSpout.GENERATOR: self._generator},
        )
        return True
