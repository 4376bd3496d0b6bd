"""Who may order a drain: nobody from another machine without a user, whatever else anonymous clients may do."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from saps.frontend.mqtt.access.options import AuthOptions
from saps.frontend.mqtt.driver.access_control import AccessControl
from saps.frontend.web.http.problems import ProblemError
from saps.frontend.web.http.visitors import Visitors


class _From:
    """Where a request comes from."""

    def __init__(self, host: str) -> None:
        self._host = host

    def get_extra_info(self, name: str, default: object = None) -> object:
        return (self._host, 50000) if name == "peername" else default


async def answered(visitors: Visitors, host: str) -> bool:
    async def done(_request: web.Request) -> web.StreamResponse:
        return web.Response()

    request = make_mocked_request("POST", "/v1/drain", transport=_From(host))
    assert (await visitors.only(done)(request)).status == 200, "it may see the state of the mesh"
    try:
        return (await visitors.changes("drain", done)(request)).status == 200
    except ProblemError as error:
        return error.problem.status != 401


@pytest.mark.parametrize(("host", "may"), [("127.0.0.1", True), ("::1", True), ("192.0.2.7", False), ("", False)])
async def test_anonymous_clients_of_other_machines_may_look_but_not_drain(host: str, may: bool) -> None:
    always = AccessControl(AuthOptions(anonymous="always"), None, exposed=True)
    assert always.guard is None
    for visitors in (Visitors(None), Visitors(always)):
        assert await answered(visitors, host) == may
