//! Parameters of the client side: sessions, requests, delivery and pipes.

macro_rules! client_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

accept_filter: Bool = "off" { units = "bool", flags = NOT_IMPLEMENTED | PLATFORM_DEPENDENT,
                              default_reason = "on (if your platform supports accept filters)" }
    "Use kernel accept filters.";
acceptor_sleep_decay: Double = "0.9" { min = "0", max = "1", flags = EXPERIMENTAL }
    "When accepting a connection fails due to a lack of resources, accepting pauses. Each success multiplies \
     the pause by this factor.";
acceptor_sleep_incr: Duration = "0" { units = "seconds", min = "0", max = "1", flags = EXPERIMENTAL }
    "Increase of the pause between accepts after each failure.";
acceptor_sleep_max: Duration = "0.05" { units = "seconds", min = "0", max = "10", flags = EXPERIMENTAL }
    "Maximum pause between accepts.";
client_ipv6_prefix: Uint = "64" { units = "bits", min = "1", max = "128" }
    "Prefix length of an IPv6 client address: limits per client apply to networks of this prefix, and to each IPv4 \
     address.";
client_max_connections: Uint = "0" { units = "connections", min = "0" }
    "Maximum number of connections of one client address. Further ones are closed at once. 0 is no limit. The \
     address is that of the PROXY header if there is one; clients of UNIX sockets have none. While this or \
     client_max_requests is set, VCL can read the number as client.connections; a limit that is never reached only \
     counts.";
client_max_requests: Uint = "0" { units = "requests", min = "0" }
    "Maximum number of concurrent requests of one client address, over all its connections. Further ones are refused \
     with status 429. 0 is no limit. While this is set, VCL can read the number as client.requests.";
listen_depth: Uint = "1024" { units = "connections", min = "0", flags = MUST_RESTART }
    "Length of the kernel's queue of connections to accept.";
timeout_idle: Duration = "5s" { units = "seconds", min = "0s", max = "1h" }
    "Maximum idle time of a client connection. A connection is idle until the head of a request is \
     complete. It is also the limit for a complete PROXY header and for a complete header block of HTTP/2.";
timeout_linger: Duration = "0.050" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Time for which a session keeps its thread after a request, to wait for another request.";
idle_send_timeout: Timeout = "60s" { units = "seconds", min = "0s", max = "1h", flags = DELAYED_EFFECT }
    "Maximum time without progress of sending before the session is closed; send_timeout may extend it.";
send_timeout: Timeout = "600.000" { units = "seconds", min = "0", flags = DELAYED_EFFECT }
    "Maximum total time to send one response that the client does not accept at once.";
lingering_close: Duration = "1s" { units = "seconds", min = "0s", max = "1m" }
    "Maximum time to read from a client that got its response, but may not have sent its whole request, before \
     its connection is closed. The bytes are discarded; without the wait, the client might lose the response. \
     At most 16 MB are read. 0 closes at once.";
http_max_ranges: UintOrZero = "16" { units = "ranges", min = "2", max = "1000" }
    "Maximum number of ranges of a body in one request; they are sent as multipart/byteranges. More are ignored, \
     and the whole body is sent. 0 refuses several ranges with status 416, as Varnish does.";
cancel_abandoned: Bool = "on" { units = "bool" }
    "When a client is gone, end all that only its request waits for: a pass, a fetch that is not for the cache, \
     its wait for the fetch of another request. A fetch for the cache continues. A client is gone when \
     it has reset its connection or its stream, or has closed the connection (see half_close_timeout).";
half_close_timeout: Timeout = "1s" { units = "seconds", min = "0" }
    "A client that has shut down its sending side and waits for the response cannot be distinguished from one \
     that closed its connection. To test it, the first bytes of the status line are sent before the response \
     is ready, to which a closed connection reacts with a reset. In the middle of a pass or of an ESI page the \
     client counts as gone when nothing could be sent to it for this time. With 0, each such client counts as \
     gone at once; never waits until the connection is reset, as Varnish does.";
http_max_hdr: Uint = "64" { units = "header lines", min = "32", max = "65535" }
    "Maximum number of header lines of a request or response. The first line counts as five.";
http_req_hdr_len: Bytes = "8k" { units = "bytes", min = "40b" }
    "Maximum length of a header line from a client.";
http_req_size: Bytes = "32k" { units = "bytes", min = "0.25k" }
    "Maximum size of a request head from a client. It is announced to HTTP/2 clients as \
     MAX_HEADER_LIST_SIZE.";
http_req_overflow_status: UintOrZero = "0" { units = "HTTP status code or 0 to disable", min = "400", max = "499" }
    "Status of the response to a request whose head exceeds http_req_size. 0 closes the connection \
     without a response.";
http_req_body_status: Uint = "400" { units = "HTTP status code", min = "400", max = "599" }
    "Status of the response to a request in clear text whose body is malformed, incomplete or too slow while it is \
     sent to an origin. Varnish 9 sends 400, which clients with TLS get in any case.";
http_resp_hdr_len: Bytes = "8k" { units = "bytes", min = "40b" }
    "Maximum length of a header line from a backend.";
http_resp_size: Bytes = "32k" { units = "bytes", min = "0.25k" }
    "Maximum size of a response head from a backend.";
http_range_support: Bool = "on" { units = "bool" }
    "Support Range headers.";
http1_iovs: Uint = "64" { units = "struct iovec (=16 bytes)", min = "5", max = "1024", flags = WIZARD }
    "Maximum number of pieces in one write of an HTTP/1 response.";
max_restarts: Uint = "4" { units = "restarts", min = "0", flags = DELAYED_EFFECT }
    "Maximum number of restarts of one request.";
pipe_sess_max: Uint = "0" { units = "connections", min = "0" }
    "Maximum number of sessions in pipe mode; 0 is no limit.";
pipe_task_deadline: Timeout = "0s" { units = "seconds", min = "0" }
    "Time after which a pipe is closed, even if it is busy. 0 is no deadline.";
pipe_timeout: Timeout = "60.000" { units = "seconds", min = "0" }
    "Time after which a pipe without traffic in either direction is closed.";
req_body_min_rate: Bytes = "100b" { units = "bytes/second", min = "0b" }
    "Minimum rate of a request body. A slower one ends with an error. Each byte adds a share of a second to \
     the time for waiting, up to six times timeout_idle, which is also the initial time of a body. Only the \
     time in which the reader waits for the client counts. 0 is no limit: then one byte per timeout_idle \
     suffices.";
tcp_fastopen: Bool = "off" { units = "bool", flags = MUST_RESTART | PLATFORM_DEPENDENT }
    "Use TCP Fast Open.";
tcp_keepalive_intvl: Duration = "75" { units = "seconds", min = "1", max = "100",
        flags = EXPERIMENTAL | PLATFORM_DEPENDENT, default_reason = "platform dependent" }
    "Time between TCP keep-alive probes. Does not apply to UNIX sockets.";
tcp_keepalive_probes: Uint = "9" { units = "probes", min = "1", max = "100",
        flags = EXPERIMENTAL | PLATFORM_DEPENDENT, default_reason = "platform dependent" }
    "Number of unacknowledged TCP keep-alive probes that end a connection. Does not apply to UNIX sockets.";
tcp_keepalive_time: Duration = "7200" { units = "seconds", min = "1", max = "7200",
        flags = EXPERIMENTAL | PLATFORM_DEPENDENT, default_reason = "platform dependent" }
    "Idle time of a connection before TCP sends keep-alive probes. Does not apply to UNIX sockets.";
trace_follow: Bool = "off" { units = "bool" }
    "Trace a request if its header traceparent says that its client does (its flag sampled), and do not if it says that \
     its client does not. trace_rate then decides about the others alone. Off: clients do not decide. Either way, a trace \
     continues that of its client.";
trace_rate: Double = "0" { min = "0", max = "1" }
    "Part of the requests whose spans are traced, such as 0.01: their transactions have log records (Notice) from which the \
     process of the admin listener makes spans for OpenTelemetry, and the origin gets their context in the headers \
     traceparent and tracestate. 0 with trace_follow off: none. This has nothing to do with feature=+trace.";
upgrade_protocols: Text = "" { }
    "Protocols that a client may upgrade to, separated by commas, such as websocket. A request for one of them is passed, \
     and if the origin answers with 101, the connection becomes a tunnel within the limits of pipe_timeout, \
     pipe_task_deadline and pipe_sess_max. Over HTTP/2 and HTTP/3, extended CONNECT is offered. Empty: a request for \
     another protocol is an ordinary request, unless VCL pipes it.";
why_header: Clients = "" { }
    "Clients whose responses contain the header X-Lacquer-Why, which explains how the response was made: addresses, \
     networks such as 10.0.0.0/8, and token=SECRET for requests that contain the secret in a header of this name. \
     Separated by commas or spaces. Empty: none. The address is that of the PROXY header if there is one.";
    } };
}
