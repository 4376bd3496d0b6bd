"""Roles of the ACL file, and the audit log of what operators do."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from saps.frontend.mqtt.driver.access_files import edit_users
from tests.frontend.mqtt.access.tokens import Issuer, key_set
from tests.frontend.web.conftest import Site, Start, authorization
from tests.frontend.web.test_web_mesh import until
from tests.frontend.web.test_web_topics import subscribed

ACL = """
default = "allow"

[roles]
viewer = "v*"
operator = ["olga", "o2"]
administrator = ["root"]

[[rule]]
deny = "subscribe"
topics = ["$SYS/#"]
"""
USERS = ("vera", "olga", "root", "sensor")


async def with_roles(start: Start, folder: Path, **settings: Any) -> Site:
    """A broker with a user for each role, and one without; passwords are as names."""
    for user in USERS:
        edit_users(folder / "passwords", user, user.encode())
    (folder / "acl.toml").write_text(ACL)
    return await start(auth__passwords=folder / "passwords", auth__acl=folder / "acl.toml", **settings)


async def status(site: Site, method: str, path: str, user: str | None, **more: Any) -> int:
    headers = authorization((user, user) if user is not None else None)
    async with site.session.request(method, site.url + path, headers=headers, **more) as response:
        return response.status


async def test_each_role_may_what_it_may_and_all_is_recorded(start: Start, tmp_path: Path) -> None:
    site = await with_roles(start, tmp_path, operations__audit=tmp_path / "audit.jsonl")
    await subscribed(site, "air/#", client="c1")
    asked = [
        ("GET", "/v1/clients", 200, 200, 200, 403, 401),
        ("DELETE", "/v1/clients/nobody", 403, 404, 404, 403, 401),
        ("POST", "/v1/drain", 403, 200, 200, 403, 401),
        ("GET", "/v1/audit", 403, 403, 200, 403, 401),
        ("DELETE", "/v1/bans/user/nobody", 403, 403, 404, 403, 401),
        ("GET", "/metrics", 200, 200, 200, 403, 401),
    ]
    for method, path, *wanted in asked:
        body = {"data": b'{"cancel": true}'} if method == "POST" else {}
        found = [await status(site, method, path, user, **body) for user in (*USERS, None)]
        assert found == wanted, path
    assert await status(site, "DELETE", "/v1/clients/c1", "olga") == 200
    assert await status(site, "GET", "/v1/clients", "olga ") == 401
    root = {"headers": authorization(("root", "root"))}
    entries = (await site.json("/v1/audit", **root))["entries"]
    done = [(entry["what"], entry["who"], entry["role"], entry.get("subject", "")) for entry in entries]
    assert done == [
        ("disconnect", "olga", "operator", "c1"),
        ("lift ban refused", "olga", "operator", "user nobody"),
        ("lift ban refused", "vera", "viewer", "user nobody"),
        ("drain", "root", "administrator", "b1"),
        ("drain", "olga", "operator", "b1"),
        ("drain refused", "vera", "viewer", ""),
        ("disconnect refused", "vera", "viewer", "nobody"),
    ]
    assert entries[0]["before"] == {"broker": "b1", "connected": True}
    assert entries[3]["after"]["cancel"]
    assert entries[5]["reason"] == "it takes the role operator; vera is viewer"
    logins = (await site.json("/v1/audit?logins=1&search=login", **root))["entries"]
    assert {(entry["what"], entry.get("subject"), entry.get("who")) for entry in logins} >= {
        ("login", "c1", None),
        ("login refused", None, "olga "),
    }
    site.broker.reload()
    lines: list[Any] = await until(
        lambda: asyncio.to_thread(_lines, tmp_path / "audit.jsonl"),
        lambda lines: any(line["what"] == "reload" for line in lines),
    )
    assert next(line for line in lines if line["what"] == "reload")["after"] == {"users": 4, "rules": 1, "taken": True}
    assert {line["broker"] for line in lines} == {"b1"}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_token_lets_an_operator_in_and_the_page_is_cut_off_when_it_ends(start: Start, tmp_path: Path) -> None:
    issuer = Issuer()
    (tmp_path / "keys.json").write_bytes(key_set(issuer))
    (tmp_path / "acl.toml").write_text(ACL)
    site = await start(auth__jwt__keys=tmp_path / "keys.json", auth__acl=tmp_path / "acl.toml")
    ends = time.time() + 2
    for user, wanted in (("olga", 200), ("sensor", 403)):
        token = issuer.token(user, exp=ends).decode()
        async with site.session.get(f"{site.url}/v1/brokers", headers={"Authorization": f"Bearer {token}"}) as response:
            assert response.status == wanted
    headers = {"Authorization": f"Bearer {issuer.token('olga', exp=ends).decode()}"}
    async with site.session.ws_connect(f"{site.url}/v1/live", headers=headers) as live:
        async for _ in live:
            pass
        assert ends <= time.time() + 0.01
        assert time.time() < ends + 1
    async with site.session.get(f"{site.url}/v1/brokers", headers=headers) as response:
        assert response.status == 401
