//! Parameters of the client side: sessions, requests, delivery and pipes.

macro_rules! client_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

accept_filter: Bool = "off" { units = "bool", flags = NOT_IMPLEMENTED | PLATFORM_DEPENDENT,
                              default_reason = "on (if your platform supports accept filters)" }
    "Use kernel accept filters.";
acceptor_sleep_decay: Double = "0.9" { min = "0", max = "1", flags = EXPERIMENTAL }
    "When accepting fails for lack of resources, accepting pauses. Each success multiplies the pause by \
     this factor.";
acceptor_sleep_incr: Duration = "0" { units = "seconds", min = "0", max = "1", flags = EXPERIMENTAL }
    "By how much the pause between accepts grows when accepting fails.";
acceptor_sleep_max: Duration = "0.05" { units = "seconds", min = "0", max = "10", flags = EXPERIMENTAL }
    "The longest pause between accepts.";
client_ipv6_prefix: Uint = "64" { units = "bits", min = "1", max = "128" }
    "How much of an IPv6 address is one client: limits per client count networks of this prefix, and each IPv4 \
     address.";
client_max_connections: Uint = "0" { units = "connections", min = "0" }
    "How many connections one client address may have. Further ones are closed at once. 0 is no limit. The \
     address comes from the PROXY header where there is one; clients of UNIX sockets have none. While this or \
     client_max_requests is set, VCL reads the number as client.connections; a limit that is never reached only \
     counts.";
client_max_requests: Uint = "0" { units = "requests", min = "0" }
    "How many requests of one client address may be at work, over all its connections. Further ones are answered \
     with status 429. 0 is no limit. While this is set, VCL reads the number as client.requests.";
listen_depth: Uint = "1024" { units = "connections", min = "0", flags = MUST_RESTART }
    "How many connections the kernel queues for us.";
timeout_idle: Duration = "5s" { units = "seconds", min = "0s", max = "1h" }
    "How long a client connection may be idle. A connection is idle until the head of a request is \
     complete. Also the limit for a whole PROXY header, and for a whole header block of HTTP/2.";
timeout_linger: Duration = "0.050" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "How long a session stays with its thread after a request, in the hope of another.";
idle_send_timeout: Timeout = "60s" { units = "seconds", min = "0s", max = "1h", flags = DELAYED_EFFECT }
    "How long sending may make no progress before the session is closed; send_timeout may extend it.";
send_timeout: Timeout = "600.000" { units = "seconds", min = "0", flags = DELAYED_EFFECT }
    "How long one response may take in total once the client does not take it at once.";
lingering_close: Duration = "1s" { units = "seconds", min = "0s", max = "1m" }
    "How long a client that was answered, but may not have sent all of its request, is listened to before \
     its connection is closed. Its bytes are thrown away; without the wait it might lose the answer. \
     At most 16 MB are taken. 0 closes at once.";
http_max_ranges: UintOrZero = "16" { units = "ranges", min = "2", max = "1000" }
    "How many ranges of a body one request may ask for; they are sent as multipart/byteranges. More are ignored, \
     and the whole body is sent. 0 refuses several ranges with status 416, as Varnish does.";
cancel_abandoned: Bool = "on" { units = "bool" }
    "When a client is gone, end what only its request waits for: a pass, a fetch that is not for the cache, \
     its place among those that wait for another's fetch. A fetch for the cache goes on. A client is gone when \
     it has reset its connection or its stream, or has closed the connection (see half_close_timeout).";
half_close_timeout: Timeout = "1s" { units = "seconds", min = "0" }
    "A client that has shut down its sending side and waits for the response looks like one that has closed \
     its connection. Before its response begins, it is sent the first bytes of the status line ahead, which a \
     closed connection answers with a reset. In the middle of a pass or of an ESI page the client counts as gone \
     when nothing could be sent to it for this long. 0 counts each such client as gone at once; never waits \
     until the connection is reset, as Varnish does.";
http_max_hdr: Uint = "64" { units = "header lines", min = "32", max = "65535" }
    "How many header lines a request or response may have. The first line counts as five.";
http_req_hdr_len: Bytes = "8k" { units = "bytes", min = "40b" }
    "The longest header line accepted from a client.";
http_req_size: Bytes = "32k" { units = "bytes", min = "0.25k" }
    "The largest request head accepted from a client. HTTP/2 clients are told it as \
     MAX_HEADER_LIST_SIZE.";
http_req_overflow_status: UintOrZero = "0" { units = "HTTP status code or 0 to disable", min = "400", max = "499" }
    "Status of the response to a request whose head exceeds http_req_size. 0 closes the connection \
     without a word.";
http_resp_hdr_len: Bytes = "8k" { units = "bytes", min = "40b" }
    "The longest header line accepted from a backend.";
http_resp_size: Bytes = "32k" { units = "bytes", min = "0.25k" }
    "The largest response head accepted from a backend.";
http_range_support: Bool = "on" { units = "bool" }
    "Obey Range headers.";
http1_iovs: Uint = "64" { units = "struct iovec (=16 bytes)", min = "5", max = "1024", flags = WIZARD }
    "How many pieces are gathered into one write of an HTTP/1 response.";
max_restarts: Uint = "4" { units = "restarts", min = "0", flags = DELAYED_EFFECT }
    "How often one request may restart.";
pipe_sess_max: Uint = "0" { units = "connections", min = "0" }
    "How many sessions may be in pipe mode at once; 0 is no limit.";
pipe_task_deadline: Timeout = "0s" { units = "seconds", min = "0" }
    "A pipe is closed after this long, however busy it is. 0 is no deadline.";
pipe_timeout: Timeout = "60.000" { units = "seconds", min = "0" }
    "A pipe is closed when nothing has passed in either direction for this long.";
req_body_min_rate: Bytes = "100b" { units = "bytes/second", min = "0b" }
    "A request body that comes slower than this ends with an error. Each byte allows for a share of a second of \
     waiting; six times timeout_idle may be saved up, which is what a body begins with. Only the time in which the \
     client is waited for counts. 0 is no limit: then a byte per timeout_idle suffices.";
tcp_fastopen: Bool = "off" { units = "bool", flags = MUST_RESTART | PLATFORM_DEPENDENT }
    "Use TCP Fast Open.";
tcp_keepalive_intvl: Duration = "75" { units = "seconds", min = "1", max = "100",
        flags = EXPERIMENTAL | PLATFORM_DEPENDENT, default_reason = "platform dependent" }
    "Time between TCP keep-alive probes. Not for UNIX sockets.";
tcp_keepalive_probes: Uint = "9" { units = "probes", min = "1", max = "100",
        flags = EXPERIMENTAL | PLATFORM_DEPENDENT, default_reason = "platform dependent" }
    "How many unanswered TCP keep-alive probes end a connection. Not for UNIX sockets.";
tcp_keepalive_time: Duration = "7200" { units = "seconds", min = "1", max = "7200",
        flags = EXPERIMENTAL | PLATFORM_DEPENDENT, default_reason = "platform dependent" }
    "How long a connection is idle before TCP sends keep-alive probes. Not for UNIX sockets.";
    } };
}
