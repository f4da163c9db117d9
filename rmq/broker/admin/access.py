"""Requests about accounts and permissions: 50 to 54 of 4.9; those of 5.3, 3001 to 3010, are refused."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from rmq.auth.addresses import parse_pattern
from rmq.auth.control import AccessControl
from rmq.auth.edit import Values, put_account, put_white, take_account
from rmq.auth.plain_acl import Account, parse_permission, short_name
from rmq.broker.parts import Ground
from rmq.protocol import fastjson
from rmq.protocol.bodies.acl import AclConfig, PlainAccessConfig
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError, ResponseError
from rmq.protocol.headers.admin import (
    CreateAccessConfigRequest,
    DeleteAccessConfigRequest,
    GetBrokerAclConfigResponse,
    UpdateGlobalWhiteAddrsConfigRequest,
)
from rmq.protocol.permissions import permission_text
from rmq.remoting.conn import Conn
from rmq.remoting.router import handles

__all__ = ["AccessAdmin", "AccessOff"]

log = logging.getLogger(__name__)

_OFF = "access control is off (aclEnable is false): there are no accounts, everybody may do everything"
_NOT_HERE = "users and policies of 5.x are not kept here: accounts are in plain_acl.yml, see updateAclConfig"
_C = RequestCode
_OF_5 = tuple(code for code in RequestCode if 3001 <= code <= 3010)
#: Codes of 4.9 for a change that failed. Java without access control answers the changes with them, and the text of an
#: internal exception, and does not answer 52 and 54 at all; 5.3.3 answers its own requests with SYSTEM_ERROR.
_FAILED: Mapping[int, int] = {
    **dict.fromkeys(_OF_5, ResponseCode.SYSTEM_ERROR),
    _C.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
    _C.GET_BROKER_CLUSTER_ACL_CONFIG: ResponseCode.SYSTEM_ERROR,
    _C.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
    _C.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
}


class AccessOff:
    """Refuses them all, in words that mqadmin shows: access control is off."""

    @handles(*_FAILED)
    def refuse(self, conn: Conn, request: Command) -> Command:
        """There is nothing to change and nothing to show."""
        raise ResponseError(_FAILED[request.code], _OFF)


class AccessAdmin:
    """Shows and changes the files of accounts.

    A change is answered with success once the file is on the disk, is read again, and is in force.
    """

    def __init__(self, ground: Ground, access: AccessControl) -> None:
        self._ground = ground
        self._access = access

    @handles(*_OF_5)
    def refuse(self, conn: Conn, request: Command) -> Command:
        """3001 to 3010."""
        raise ResponseError(_FAILED[request.code], _NOT_HERE)

    @handles(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header=CreateAccessConfigRequest)
    async def update(self, conn: Conn, request: Command, header: CreateAccessConfigRequest) -> Command:
        """50: change what is named of an account, or make it."""
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        key, secret = header.access_key.strip(), header.secret_key
        known = self._access.known.rules.accounts.get(key)
        if short_name(key) or (short_name(secret) if secret else known is None):
            raise ResponseError(
                failed, f"The accessKey={key} and secretKey cannot be null and length should longer than 6"
            )
        values = _values(header, request.ext or {})
        path = self._file_of(key)

        def edit(path: str, data: bytes) -> bytes:
            return put_account(path, data, key, values)

        await self._change(request, path, edit)
        log.info("%s %s the account %s in %s", conn.peer, "made" if known is None else "changed", key, path)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.DELETE_ACL_CONFIG, header=DeleteAccessConfigRequest)
    async def delete(self, conn: Conn, request: Command, header: DeleteAccessConfigRequest) -> Command:
        """51: an account may do nothing any more, from the next request on."""
        key = header.access_key
        if key not in self._access.known.rules.accounts:
            raise ResponseError(
                ResponseCode.DELETE_ACL_CONFIG_FAILED,
                f"The accesskey[{key}] corresponding to accessConfig has been deleted failed.",
            )
        path = self._file_of(key)
        await self._change(request, path, lambda path, data: take_account(path, data, key))
        log.info("%s deleted the account %s of %s", conn.peer, key, path)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header=UpdateGlobalWhiteAddrsConfigRequest)
    async def white_addresses(
        self, conn: Conn, request: Command, header: UpdateGlobalWhiteAddrsConfigRequest
    ) -> Command:
        """53: the global white list of a file, plain_acl.yml unless another is named."""
        addresses = _listed(header.global_white_addrs)
        path = (header.acl_file_full_path or "").strip() or self._access.plain_file
        try:
            for address in addresses:
                parse_pattern(address)
        except ConfigError as error:
            raise ResponseError(_FAILED[request.code], str(error)) from None
        if addresses and not self._access.keeps_in(conn.host, request, addresses):
            raise ResponseError(
                _FAILED[request.code],
                f"{conn.host}, which asks for this, would be refused with this list: name its address, too",
            )
        await self._change(request, path, lambda path, data: put_white(path, data, addresses))
        log.info("%s changed the global white list of %s", conn.peer, path)
        return request.reply(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
    def versions(self, conn: Conn, request: Command) -> Command:
        """52: how often each file has changed."""
        versions, settings = self._access.versions, self._ground.settings
        first = versions.get(self._access.plain_file, DataVersion(counter=0, timestamp=0))
        return request.reply(
            ResponseCode.SUCCESS,
            header=GetBrokerAclConfigResponse(
                version=fastjson.dumps(_numbers(first)).decode(),
                all_acl_file_version=fastjson.dumps({path: _numbers(one) for path, one in versions.items()}).decode(),
                broker_name=settings.broker_name,
                broker_addr=self._ground.broker_addr,
                cluster_name=settings.broker_cluster_name,
            ),
        )

    @handles(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
    def config(self, conn: Conn, request: Command) -> Command:
        """54: accounts and white lists; secrets only with ``aclConfigShowsSecrets``."""
        rules, secrets = self._access.known.rules, self._ground.settings.acl_config_shows_secrets
        body = AclConfig(
            global_white_addrs=[pattern.text for pattern in rules.white],
            plain_access_configs=[_shown(account, secrets=secrets) for account in rules.accounts.values()],
        )
        answer = request.reply(ResponseCode.SUCCESS, body=body.encode())
        answer.ext = {}
        return answer

    def _file_of(self, key: str) -> str:
        """The file of an account; a new one goes where Java looks first."""
        for file in self._access.known.files:
            if any(account.access_key == key for account in file.accounts):
                return file.path
        return self._access.plain_file

    async def _change(self, request: Command, path: str, edit: Callable[[str, bytes], bytes]) -> None:
        failed = _FAILED[request.code]
        try:
            await self._access.change(path, edit)
        except ConfigError as error:
            raise ResponseError(failed, str(error)) from None
        except OSError as error:
            log.error("%s cannot be changed: %s", path, error)
            raise ResponseError(failed, f"the file of accounts cannot be written: {error.strerror or error}") from None


def _listed(text: str) -> list[str]:
    """Texts joined by commas; those in braces belong together (``10.1.2.{3,4}``)."""
    found: list[str] = []
    inside = False
    word = ""
    for character in text + ",":
        if character == "," and not inside:
            if word.strip():
                found.append(word.strip())
            word = ""
            continue
        inside = character == "{" or (inside and character != "}")
        word += character
    return found


def _values(header: CreateAccessConfigRequest, ext: Mapping[str, str | None]) -> Values:
    """What is to be changed of an account, by the keys of the file."""
    failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
    values: Values = {}
    if header.secret_key:
        values["secretKey"] = header.secret_key
    if header.white_remote_address:
        try:
            parse_pattern(header.white_remote_address)
        except ConfigError as error:
            raise ResponseError(failed, str(error)) from None
        values["whiteRemoteAddress"] = header.white_remote_address
    if ext.get("admin") is not None:
        values["admin"] = "true" if header.admin else "false"
    for key, text in (("defaultTopicPerm", header.default_topic_perm), ("defaultGroupPerm", header.default_group_perm)):
        if text:
            if parse_permission(text) is None:
                raise ResponseError(failed, f"{key}={text[:64]}: DENY, PUB, SUB or PUB|SUB is expected")
            values[key] = text.strip()
    for key, text in (("topicPerms", header.topic_perms), ("groupPerms", header.group_perms)):
        if text:
            items = _listed(text)
            for item in items:
                name, _, permission = item.partition("=")
                if not name.strip() or parse_permission(permission) is None:
                    raise ResponseError(
                        failed,
                        f"Parse resource permission error for {item[:300]}.\n"
                        "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'.",
                    )
            values[key] = items
    return values


def _numbers(version: DataVersion) -> dict[str, int]:
    return {"counter": version.counter, "timestamp": version.timestamp}


def _shown(account: Account, *, secrets: bool) -> PlainAccessConfig:
    def shown(permissions: Mapping[str, int]) -> list[str] | None:
        return [f"{name}={permission_text(bits)}" for name, bits in permissions.items()] or None

    return PlainAccessConfig(
        access_key=account.access_key,
        admin=account.admin,
        default_group_perm=permission_text(account.default_group),
        default_topic_perm=permission_text(account.default_topic),
        group_perms=shown(account.groups),
        secret_key=account.secret_key if secrets else None,
        topic_perms=shown(account.topics),
        white_remote_address=account.white.text or None,
    )
