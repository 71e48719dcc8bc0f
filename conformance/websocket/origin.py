"""A WebSocket origin for conformance/websocket-clients: repeats messages, and closes or breaks a connection on demand."""

import asyncio
import http
import sys

from websockets.asyncio.server import serve


async def handle(connection):
    async for message in connection:
        if message == "close":
            await connection.close(4001, "as you wish")
        elif message == "break":
            connection.transport.abort()
        else:
            await connection.send(message)


def refuse(connection, request):
    """Answers some paths without an upgrade."""
    if request.path == "/page":
        return connection.respond(http.HTTPStatus.OK, "a page\n")
    if request.path == "/forbidden":
        return connection.respond(http.HTTPStatus.FORBIDDEN, "no\n")
    return None


async def main():
    limits = {"max_size": None, "ping_interval": None, "compression": None, "open_timeout": 60}
    async with serve(handle, "127.0.0.1", int(sys.argv[1]), process_request=refuse, backlog=1024, **limits) as server:
        await server.serve_forever()


asyncio.run(main())
