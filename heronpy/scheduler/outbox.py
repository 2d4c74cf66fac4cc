"""Carries out the decisions of placement: writes the ledger, then sends commands to the engine and answers to
containers.

No effect that follows a `Persist` is carried out before the ledger has been written. The permit is proved before each
command. A scheduler that has lost its permit carries out no further effects. While the state manager is unavailable,
the newest command of each kind for a container replaces older ones, and the newest ledger replaces older ledgers, so
the queue is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from heronpy.common.errors import FencedError, HeronError
from heronpy.scheduler.engine_client import EngineClient
from heronpy.scheduler.ledger import LedgerStore
from heronpy.scheduler.placement_events import (
    Activate,
    AllGone,
    Cancel,
    Effect,
    Fence,
    GiveUp,
    Grant,
    Note,
    Persist,
    Submit,
)

log = logging.getLogger("heronpy.scheduler")

#: Pause before a failed request to the state manager is repeated.
AGAIN_S = 0.5


class Outbox:
    """Carries out effects in order. `answer` answers containers, `prove` proves the permit, `lost` reports its loss."""

    def __init__(
        self,
        ledger: LedgerStore,
        client: EngineClient,
        answer: Callable[[Activate | Grant | Fence], None],
        all_gone: Callable[[AllGone], None],
        prove: Callable[[], Awaitable[None]],
        lost: Callable[[FencedError], None],
    ) -> None:
        self._store = ledger
        self._client = client
        self._answer = answer
        self._all_gone = all_gone
        self._prove = prove
        self._lost = lost
        self._ledger: Persist | None = None
        self._commands: dict[tuple[object, ...], Submit | Cancel | Activate | AllGone] = {}
        self._wake = asyncio.Event()
        self._away = ""

    def put(self, effects: Iterable[Effect]) -> None:
        """Queue the effects of one event, in order."""
        for effect in effects:
            match effect:
                case Grant() | Fence():
                    self._answer(effect)
                case Note(text, warning):
                    log.log(logging.WARNING if warning else logging.INFO, "%s", text)
                case GiveUp(container, _, detail):
                    log.error("container %d has FAILED: %s", container, detail)
                case Persist():
                    self._ledger = effect
                    self._wake.set()
                case _:
                    key = _key(effect)
                    self._commands.pop(key, None)
                    self._commands[key] = effect
                    self._wake.set()

    async def run(self) -> None:
        """Run until this scheduler loses its permit."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            ledger, self._ledger = self._ledger, None
            commands, self._commands = self._commands, {}
            try:
                if ledger is not None:
                    await asyncio.to_thread(self._store.write, ledger.ledger, ledger.killing, ledger.hosts)
                elif commands:
                    await self._prove()
            except FencedError as error:
                self._lost(error)
                return
            except (HeronError, OSError) as error:
                self._complain(str(error))
                self._ledger = self._ledger if self._ledger is not None else ledger
                self._commands = {**commands, **self._commands}
                self._wake.set()
                await asyncio.sleep(AGAIN_S)
                continue
            self._complain("")
            for effect in commands.values():
                self._carry_out(effect)

    def _carry_out(self, effect: Submit | Cancel | Activate | AllGone) -> None:
        if isinstance(effect, Activate):
            self._answer(effect)
        elif isinstance(effect, AllGone):
            self._all_gone(effect)
        else:
            self._client.put(effect)

    def _complain(self, text: str) -> None:
        if text and not self._away:
            log.warning("the scheduler's decisions are delayed, because the state manager does not answer: %s", text)
        elif self._away and not text:
            log.info("the state manager answers again")
        self._away = text


def _key(effect: Submit | Cancel | Activate | AllGone) -> tuple[object, ...]:
    if isinstance(effect, Submit):
        return Submit, effect.request.container
    if isinstance(effect, Cancel):
        return Cancel, effect.container, effect.submission
    return (type(effect), effect.container) if isinstance(effect, Activate) else (AllGone,)
