"""A client of HTTP/3 by aioquic, for conformance/http3-clients. Prints a line for each case."""

import asyncio
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset

PORT = int(sys.argv[1])
PATIENCE = 30


class Client(QuicConnectionProtocol):
    """A connection. Requests run at the same time."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = None
        self.waiting = {}
        self.responses = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset):
            self.end(event.stream_id)
        for found in self.http.handle_event(event) if self.http else []:
            if not isinstance(found, (HeadersReceived, DataReceived)):
                continue
            headers, body = self.responses.setdefault(found.stream_id, ({}, bytearray()))
            if isinstance(found, HeadersReceived):
                headers.update(found.headers)
            else:
                body.extend(found.data)
            if found.stream_ended:
                self.end(found.stream_id)

    def end(self, stream):
        waiting = self.waiting.pop(stream, None)
        if waiting and not waiting.done():
            waiting.set_result(None)

    async def send(self, path, method="GET", fields=(), body=None):
        """Returns the fields and the body of the response."""
        self.http = self.http or H3Connection(self._quic)
        stream = self._quic.get_next_available_stream_id()
        pseudo = {":method": method, ":scheme": "https", ":authority": "example.test", ":path": path}
        lines = [(name.encode(), value.encode()) for name, value in [*pseudo.items(), *fields]]
        self.http.send_headers(stream, lines, end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=True)
        self.waiting[stream] = asyncio.get_running_loop().create_future()
        waiting = self.waiting[stream]
        self.transmit()
        await asyncio.wait_for(waiting, PATIENCE)
        headers, body = self.responses.pop(stream, ({}, b""))
        return {name.decode(): value.decode() for name, value in headers.items()}, bytes(body)


def client(ticket=None, on_ticket=None, is_early=False):
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=["h3"], server_name="example.test", verify_mode=ssl.CERT_NONE, session_ticket=ticket
    )
    configuration.max_stream_data = configuration.max_data = 1 << 24
    return connect(
        "127.0.0.1", PORT, configuration=configuration, create_protocol=Client, session_ticket_handler=on_ticket,
        wait_connected=not is_early
    )


def page(size):
    return bytes(at % 251 for at in range(size))


async def pages():
    async with client() as c:
        for size in (0, 1, 100, 5000, 100_000, 3_000_000):
            for kind in ("", "", "/private"):
                fields, body = await c.send(f"/{size}{kind}")
                assert fields[":status"] == "200" and body == page(size), f"{size}{kind}: {fields}"
        fields, body = await c.send("/100000", fields=[("range", "bytes=5-9")])
        assert fields[":status"] == "206" and body == page(10)[5:], fields


async def bodies():
    async with client() as c:
        for size in (1, 1000, 1_000_000):
            for fields in ([], [("content-length", str(size))]):
                fields, body = await c.send("/echo", "POST", fields, page(size))
                assert body == page(size), f"{size}: {fields}"


async def facts():
    async with client() as c:
        fields, _ = await c.send("/facts", fields=[("cookie", "a=b"), ("cookie", "c=d")])
        assert (fields["x-proto"], fields["x-cookie"]) == ("HTTP/3.0", "a=b; c=d"), fields


async def fields_in_the_dynamic_table():
    async with client() as c:
        await c.send("/100")
        for turn in range(5):
            extra = lambda at: [("user-agent", f"test/{turn}"), (f"x-long-{at % 7}", f"value-{at % 5}" * 10)]
            answers = await asyncio.gather(*(c.send("/1000", fields=extra(at)) for at in range(40)))
            assert all(body == page(1000) for _, body in answers)


async def a_resumed_session():
    tickets = []
    async with client(on_ticket=tickets.append) as c:
        await c.send("/100")
        await asyncio.sleep(0.2)
    assert tickets, "no ticket"
    async with client(tickets[0]) as c:
        fields, _ = await c.send("/100")
        assert fields[":status"] == "200" and c._quic.tls.session_resumed


async def a_request_with_the_first_flight():
    tickets = []
    async with client(on_ticket=tickets.append) as c:
        fields, _ = await c.send("/facts")
        assert fields.get("x-early") is None
    assert tickets and tickets[0].max_early_data_size == 0xFFFFFFFF, tickets
    async with client(tickets[0], is_early=True) as c:
        fields, _ = await c.send("/facts")
        assert c._quic.tls.early_data_accepted and fields.get("x-early") == "1", fields
        _, body = await c.send("/post", "POST", body=b"abc")
        assert body == b"abc"
    async with client(tickets[0], is_early=True) as c:
        fields, _ = await c.send("/facts")
        assert not c._quic.tls.early_data_accepted and fields.get("x-early") is None, fields


async def many_connection_ids():
    async with client() as c:
        for _ in range(300):
            c.change_connection_id()
            fields, _ = await c.send("/100")
            assert fields[":status"] == "200"


async def many_connections():
    async def one():
        async with client() as c:
            return (await c.send("/100"))[1] == page(100)

    assert all(await asyncio.gather(*(one() for _ in range(100))))


async def main():
    cases = (
        pages, bodies, facts, fields_in_the_dynamic_table, a_resumed_session,
        a_request_with_the_first_flight, many_connection_ids, many_connections
    )
    for case in cases:
        try:
            await case()
            print("ok", case.__name__)
        except Exception as error:
            print("FAIL", case.__name__, repr(error))


asyncio.run(main())
