"""A server and a client of gRPC by grpcio, for conformance/grpc-clients. Prints a line for each case.

Messages are bytes, so no definition of a service is compiled.
"""

import queue
import sys
import threading
import time
from concurrent import futures

import grpc

PORT, ORIGIN = map(int, sys.argv[1:3])
PATIENCE = 20


def unary(request, context):
    if request == b"fail":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: 100%")
    context.set_trailing_metadata((("length", str(len(request))),))
    return request


def collect(requests, context):
    return b",".join(requests)


def count(request, context):
    for number in range(int(request)):
        yield b"%d" % number


ended = threading.Event()


def echo(requests, context):
    context.add_callback(ended.set)
    for request in requests:
        yield request
        if request == b"bye":
            return


def serve():
    kinds = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
    }
    server = grpc.server(futures.ThreadPoolExecutor(64))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", kinds),))
    assert server.add_insecure_port(f"127.0.0.1:{ORIGIN}")
    server.start()
    return server


channel = grpc.insecure_channel(f"127.0.0.1:{PORT}")


def method(kind, name):
    return getattr(channel, kind)(f"/test.Service/{name}")


def unary_calls():
    call = method("unary_unary", "Unary")
    for request in (b"", b"x", b"x" * 1_000_000):
        response, facts = call.with_call(request, timeout=PATIENCE)
        assert response == request and ("length", str(len(request))) in facts.trailing_metadata()


def errors_in_trailers():
    try:
        method("unary_unary", "Unary")(b"fail", timeout=PATIENCE)
    except grpc.RpcError as error:
        assert (error.code(), error.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not now: 100%"), error
    else:
        raise AssertionError("no error")


def streams_of_one_direction():
    assert method("stream_unary", "Collect")(iter([b"a", b"b", b"c"]), timeout=PATIENCE) == b"a,b,c"
    numbers = list(method("unary_stream", "Count")(b"1000", timeout=PATIENCE))
    assert numbers == [b"%d" % number for number in range(1000)]


def converse(rounds, last=None):
    """Sends each message after the response to the one before."""
    requests = queue.Queue()
    responses = method("stream_stream", "Echo")(iter(requests.get, None), timeout=PATIENCE)
    for number in range(rounds):
        requests.put(b"message %d" % number)
        assert next(responses) == b"message %d" % number
    requests.put(last)
    rest = list(responses)
    requests.put(None)
    assert rest == ([] if last is None else [last]), rest
    assert responses.code() == grpc.StatusCode.OK


def both_directions_at_once():
    converse(200)


def a_server_that_ends_first():
    converse(10, b"bye")


def a_silent_client():
    requests = queue.Queue()
    responses = method("stream_stream", "Echo")(iter(requests.get, None), timeout=PATIENCE)
    requests.put(b"first")
    assert next(responses) == b"first"
    time.sleep(2)
    requests.put(b"second")
    assert next(responses) == b"second"
    requests.put(None)
    assert list(responses) == []


def a_cancelled_call():
    ended.clear()
    requests = queue.Queue()
    responses = method("stream_stream", "Echo")(iter(requests.get, None), timeout=PATIENCE)
    requests.put(b"first")
    assert next(responses) == b"first"
    responses.cancel()
    requests.put(None)
    assert ended.wait(PATIENCE), "the server does not learn of it"


def many_calls():
    with futures.ThreadPoolExecutor(30) as pool:
        for done in [pool.submit(converse, 30) for _ in range(30)]:
            done.result()


server = serve()
for case in (
    unary_calls, errors_in_trailers, streams_of_one_direction, both_directions_at_once, a_server_that_ends_first,
    a_silent_client, a_cancelled_call, many_calls
):
    try:
        case()
        print("ok", case.__name__)
    except BaseException as error:
        print("FAIL", case.__name__, repr(error))
sys.stdout.flush()
channel.close()
server.stop(0)
