"""Clients for conformance/websocket-clients. Each protocol has a class with the same functions: `open` a tunnel to a path,
`send`, `receive`, `close` and `closed`."""

import asyncio
import contextlib
import functools
import ssl
import sys
import time

import h2.config
import h2.connection
import h2.events
import h2.settings
import websockets
import wsproto.events
from aioquic.asyncio.client import connect as quic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection, Setting
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset
from websockets.asyncio.client import connect as websocket_connect
from wsproto.connection import Connection, ConnectionState, ConnectionType

MEGABYTE = bytes(at % 251 for at in range(1 << 20))
PATIENCE = 60


@functools.cache
def tls(*protocols):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(protocols))
    return context


class Refused(Exception):
    """The server has answered with another status than that of a tunnel."""


class Http1:
    """WebSocket over HTTP/1.1, by the package `websockets`."""

    def __init__(self, socket):
        self.socket = socket

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(scheme, port, path):
        uri = f"{scheme}://example.test{path}"
        options = {"host": "127.0.0.1", "port": port, "max_size": None, "ping_interval": None, "compression": None}
        if scheme == "wss":
            options["ssl"] = tls("http/1.1")
        try:
            socket = await websocket_connect(uri, open_timeout=PATIENCE, proxy=None, **options)
        except websockets.exceptions.InvalidStatus as refused:
            raise Refused(refused.response.status_code) from refused
        async with socket:
            yield Http1(socket)

    async def send(self, message):
        await self.socket.send(message)

    async def receive(self):
        return await self.socket.recv()

    async def close(self):
        await self.socket.close()

    async def closed(self):
        """Returns the code with which the other side has closed, or None if the connection was broken."""
        try:
            await self.socket.recv()
        except websockets.exceptions.ConnectionClosed as closed:
            return closed.rcvd and closed.rcvd.code
        return 0


class Tunnel:
    """WebSocket in a stream. `carrier` writes bytes to the stream, and passes on what it receives."""

    def __init__(self, carrier, stream):
        self.carrier, self.stream = carrier, stream
        self.protocol = Connection(ConnectionType.CLIENT)
        self.messages, self.pending = asyncio.Queue(), []
        self.status = asyncio.get_running_loop().create_future()
        self.ended = asyncio.get_running_loop().create_future()
        self.code = None

    def feed(self, data):
        """Handles bytes of the stream."""
        if not data:
            return
        self.protocol.receive_data(data)
        for event in self.protocol.events():
            if isinstance(event, (wsproto.events.BytesMessage, wsproto.events.TextMessage)):
                self.pending.append(event.data)
                if event.message_finished:
                    kind = b"" if isinstance(event, wsproto.events.BytesMessage) else ""
                    self.messages.put_nowait(kind.join(self.pending))
                    self.pending = []
            elif isinstance(event, wsproto.events.CloseConnection) and self.code is None:
                self.code = event.code
                self.answer(event)

    def answer(self, event):
        """Confirms that the other side closes, unless this side has closed before."""
        if self.protocol.state is ConnectionState.REMOTE_CLOSING:
            data = self.protocol.send(event.response())
            self.answering = asyncio.create_task(self.carrier.write(self.stream, data, False))

    def end(self):
        if not self.ended.done():
            self.ended.set_result(None)

    async def send(self, message):
        kind = wsproto.events.TextMessage if isinstance(message, str) else wsproto.events.BytesMessage
        await self.carrier.write(self.stream, self.protocol.send(kind(data=message)), False)

    async def receive(self):
        return await asyncio.wait_for(self.messages.get(), PATIENCE)

    async def close(self):
        await self.carrier.write(self.stream, self.protocol.send(wsproto.events.CloseConnection(code=1000)), False)
        await asyncio.wait_for(self.ended, PATIENCE)
        assert self.code == 1000, self.code

    async def closed(self):
        await asyncio.wait_for(self.ended, PATIENCE)
        return self.code


class Changing:
    """Connections whose events set `changed`."""

    async def until(self, condition):
        async def wait():
            while not condition():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), PATIENCE)


class Http2(Changing):
    """Connections of HTTP/2 with WebSocket in their streams, by the package `h2`."""

    MOST = 90

    def __init__(self, reader, writer):
        self.reader, self.writer, self.tunnels = reader, writer, {}
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.changed = asyncio.Event()
        self.is_slow = False

    @staticmethod
    @contextlib.asynccontextmanager
    async def connection(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls("h2"))
        self = Http2(reader, writer)
        self.h2.initiate_connection()
        writer.write(self.h2.data_to_send())
        running = asyncio.create_task(self.run())
        await self.until(lambda: self.h2.remote_settings.enable_connect_protocol == 1)
        try:
            yield self
        finally:
            running.cancel()
            writer.close()

    async def run(self):
        while data := await self.reader.read(1 << 16):
            for event in self.h2.receive_data(data):
                self.handle(event)
            self.writer.write(self.h2.data_to_send())
            self.changed.set()
            if self.is_slow:
                await asyncio.sleep(0.05)

    def handle(self, event):
        tunnel = self.tunnels.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived):
            tunnel.status.set_result(int(dict(event.headers)[":status"]))
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if tunnel.status.result() == 200:
                tunnel.feed(event.data)
        elif isinstance(event, h2.events.StreamEnded):
            tunnel.end()
        elif isinstance(event, h2.events.StreamReset):
            tunnel.code = f"reset {int(event.error_code)}"
            tunnel.end()
        elif isinstance(event, h2.events.ConnectionTerminated):
            print("http2: the server ends the connection:", event.error_code, event.additional_data)

    async def write(self, stream, data, end):
        while data:
            await self.until(lambda: self.h2.local_flow_control_window(stream) > 0)
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            self.h2.send_data(stream, data[:room])
            data = data[room:]
            self.writer.write(self.h2.data_to_send())
            await self.writer.drain()
        if end:
            self.h2.end_stream(stream)
            self.writer.write(self.h2.data_to_send())

    async def tunnel(self, path):
        stream = self.h2.get_next_available_stream_id()
        tunnel = self.tunnels[stream] = Tunnel(self, stream)
        self.h2.send_headers(stream, connect_fields(path))
        self.writer.write(self.h2.data_to_send())
        status = await asyncio.wait_for(tunnel.status, PATIENCE)
        if status != 200:
            raise Refused(status)
        return tunnel


def connect_fields(path):
    return [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "example.test"),
        (":path", path),
        ("sec-websocket-version", "13"),
    ]


class Http3(Changing, QuicConnectionProtocol):
    """Connections of HTTP/3 with WebSocket in their streams, by the package `aioquic`."""

    MOST = 90

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.h3, self.tunnels = H3Connection(self._quic), {}
        self.changed = asyncio.Event()

    @staticmethod
    @contextlib.asynccontextmanager
    async def connection(port):
        options = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE)
        options.server_name = "example.test"
        async with quic_connect("127.0.0.1", port, configuration=options, create_protocol=Http3) as self:
            await self.until(lambda: (self.h3.received_settings or {}).get(Setting.ENABLE_CONNECT_PROTOCOL))
            yield self

    def quic_event_received(self, event):
        for happened in self.h3.handle_event(event):
            tunnel = self.tunnels.get(getattr(happened, "stream_id", None))
            if isinstance(happened, HeadersReceived):
                tunnel.status.set_result(int(dict(happened.headers)[b":status"]))
            elif isinstance(happened, DataReceived) and tunnel.status.result() == 200:
                tunnel.feed(happened.data)
            if tunnel and getattr(happened, "stream_ended", False):
                tunnel.end()
        if isinstance(event, StreamReset) and event.stream_id in self.tunnels:
            self.tunnels[event.stream_id].code = f"reset {event.error_code}"
            self.tunnels[event.stream_id].end()
        self.changed.set()

    async def write(self, stream, data, end):
        self.h3.send_data(stream, data, end)
        self.transmit()

    async def tunnel(self, path):
        stream = self._quic.get_next_available_stream_id()
        tunnel = self.tunnels[stream] = Tunnel(self, stream)
        self.h3.send_headers(stream, [(name.encode(), value.encode()) for name, value in connect_fields(path)])
        self.transmit()
        status = await asyncio.wait_for(tunnel.status, PATIENCE)
        if status != 200:
            raise Refused(status)
        return tunnel


def opener(protocol, plain, secure):
    """Returns a function that opens a connection for one tunnel, as a context."""
    if protocol in ("http1", "http1s"):
        scheme, port = ("ws", plain) if protocol == "http1" else ("wss", secure)
        return lambda path: Http1.open(scheme, port, path)
    kind = Http2 if protocol == "http2" else Http3

    @contextlib.asynccontextmanager
    async def open_one(path):
        async with kind.connection(secure) as connection:
            yield await connection.tunnel(path)

    return open_one


async def exchanges_a_megabyte(open_one):
    async with open_one("/echo") as tunnel:
        await tunnel.send("text")
        assert await tunnel.receive() == "text"
        for _ in range(3):
            await tunnel.send(MEGABYTE)
            assert await tunnel.receive() == MEGABYTE
        await tunnel.close()


async def sends_while_it_receives(open_one):
    async with open_one("/echo") as tunnel:
        async def send():
            for _ in range(8):
                await tunnel.send(MEGABYTE)

        sending = asyncio.create_task(send())
        for _ in range(8):
            assert await tunnel.receive() == MEGABYTE
        await sending
        await tunnel.close()


async def reads_slowly(open_one):
    """The echo of several messages waits for the reader, and is whole."""
    async with open_one("/echo") as tunnel:
        if hasattr(tunnel, "carrier"):
            tunnel.carrier.is_slow = True
        sending = asyncio.create_task(asyncio.wait_for(send_all(tunnel, 3), PATIENCE))
        for _ in range(3):
            await asyncio.sleep(1)
            assert await tunnel.receive() == MEGABYTE
        await sending
        await tunnel.close()


async def send_all(tunnel, count):
    for _ in range(count):
        await tunnel.send(MEGABYTE)


async def is_closed_by_the_origin(open_one):
    async with open_one("/echo") as tunnel:
        await tunnel.send("close")
        assert await tunnel.closed() == 4001


async def is_broken_by_the_origin(open_one):
    async with open_one("/echo") as tunnel:
        await tunnel.send("break")
        code = await tunnel.closed()
        assert code in (None, "reset 8", "reset 268"), code


async def is_refused(open_one):
    for path, statuses in (("/forbidden", [403]), ("/page", [200, 502])):
        try:
            async with open_one(path):
                raise AssertionError(f"{path} has become a tunnel")
        except Refused as refused:
            assert refused.args[0] in statuses, refused


async def opens_many(protocol, open_one, secure, count):
    """All tunnels are open at once, and each of them works."""
    async with contextlib.AsyncExitStack() as stack:
        if protocol in ("http1", "http1s"):
            contexts = [open_one("/echo") for _ in range(count)]
            tunnels = await in_groups(50, [stack.enter_async_context(context) for context in contexts])
        else:
            kind = Http2 if protocol == "http2" else Http3
            groups = [kind.MOST] * (count // kind.MOST) + [count % kind.MOST]
            connections = [await stack.enter_async_context(kind.connection(secure)) for _ in groups]
            work = [c.tunnel("/echo") for c, n in zip(connections, groups) for _ in range(n)]
            tunnels = await in_groups(50, work)
        assert len(tunnels) == count
        for number, tunnel in enumerate(tunnels):
            await tunnel.send(f"message {number}")
        for number, tunnel in enumerate(tunnels):
            assert await tunnel.receive() == f"message {number}"
        await in_groups(50, [tunnel.close() for tunnel in tunnels])


async def in_groups(size, work):
    results = []
    for start in range(0, len(work), size):
        results += await asyncio.gather(*work[start : start + size])
    return results


async def main():
    protocol, plain, secure, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    open_one = opener(protocol, plain, secure)
    tests = [
        exchanges_a_megabyte,
        sends_while_it_receives,
        reads_slowly,
        is_closed_by_the_origin,
        is_broken_by_the_origin,
        is_refused,
    ]
    for test in tests:
        begun = time.time()
        await asyncio.wait_for(test(open_one), 2 * PATIENCE)
        print(f"{protocol}: {test.__name__} ({time.time() - begun:.1f} s)", flush=True)
    begun = time.time()
    await opens_many(protocol, open_one, secure, count)
    print(f"{protocol}: opens {count} at once ({time.time() - begun:.1f} s)", flush=True)


asyncio.run(main())
