"""Keeps a gateway and the router actor in touch: settings one way, how things stand the other."""

import asyncio
import logging
from typing import NoReturn

from policies.tunables import Tunables
from serve_app.config import RecordConfig
from serve_app.route_request import GatewaySeat, RouterStatus
from serve_app.router_client import RouterLike, RouterSilent

logger = logging.getLogger("ray.serve")

PERIOD_S = 1.0
TIMEOUT_S = 5.0


class RouterWatch:
    """Tells the router actor its settings again and again, as a restarted one has forgotten them.

    `tunables` are None until some are given. `status` is None while it does not answer;
    `block_size` is what it last said, as that of the engines stays. `settings_error` says why the
    settings given last were refused. `seat` is where it watches from.
    """

    def __init__(self, client: RouterLike, record: RecordConfig | None, seat: GatewaySeat) -> None:
        self.tunables: Tunables | None = None
        self.settings_error: str | None = None
        self.status: RouterStatus | None = None
        self.block_size: int | None = None
        self._client = client
        self._record = record
        self._seat = seat

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        while True:
            try:
                status: RouterStatus = await self._client.call(
                    "configure", self.tunables, self._record, self._seat, timeout_s=TIMEOUT_S
                )
            except RouterSilent as error:
                if self.status:
                    logger.warning("the router actor is silent: %s", error)
                self.status = None
            else:
                self.status = status
                self.block_size = status.block_size or self.block_size
            await asyncio.sleep(PERIOD_S)
