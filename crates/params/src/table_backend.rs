//! Parameters of the backend side: connections, timeouts and retries.

macro_rules! backend_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

connect_timeout: Timeout = "3.500" { units = "seconds", min = "0" }
    "Maximum time to connect to a backend. VCL can override it for a backend or a request.";
first_byte_timeout: Timeout = "60" { units = "seconds", min = "0" }
    "Maximum time until a backend sends the first byte of its response, and before that until it reads further \
     bytes of the request. VCL can override it for a backend or a request. Does not apply to pipes.";
between_bytes_timeout: Timeout = "60" { units = "seconds", min = "0" }
    "Maximum pause of a backend within its response. VCL can override it for a backend or a \
     request. Does not apply to pipes.";
backend_breaker_failures: Natural = "0" { units = "failures", min = "0" }
    "Number of failures in a row to connect to an address of a backend after which its circuit breaker opens: no \
     attempt is made for backend_breaker_pause, and then one at a time until one succeeds. Fetches use \
     another address of the host or another backend of the director meanwhile, or fail at once. 0 disables the breaker.";
backend_breaker_pause: Duration = "5.000" { units = "seconds", min = "0.1" }
    "Time without attempts to connect while the circuit breaker of an address is open.";
backend_breaker_period: Duration = "10.000" { units = "seconds", min = "0.1" }
    "Longest time from the first to the last of the failures that open the circuit breaker of an address.";
backend_idle_timeout: Duration = "60" { units = "seconds", min = "1" }
    "Time after which an unused backend connection is closed.";
backend_max_age: Duration = "0" { units = "seconds", min = "0" }
    "Age at which a backend connection is closed after a response instead of being kept. VCL can override it for a \
     backend. 0 is no limit.";
backend_max_requests: Natural = "0" { units = "requests", min = "0" }
    "Number of requests after which a backend connection is closed. VCL can override it for a backend. 0 is no limit.";
backend_local_error_holddown: Duration = "10.000" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Time without further attempts to connect after a local failure (EADDRNOTAVAIL, EACCES, \
     EPERM).";
backend_remote_error_holddown: Duration = "0.250" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Time without further attempts to connect after a failure of the backend or the network \
     (ECONNREFUSED, ENETUNREACH).";
backend_head_timeout: Timeout = "60" { units = "seconds", min = "0" }
    "Maximum time from the first to the last byte of a backend's response head. Regardless of this value, no head \
     may take longer than first_byte_timeout and between_bytes_timeout together.";
backend_quiet_time: Duration = "0.050" { units = "seconds", min = "0", max = "10" }
    "Time that a backend connection must be quiet before it is reused, in cases where more bytes may follow: \
     after a response that never has a body (to HEAD, or with status 204 or 304), after the first response \
     of a backend, and for a twentieth of the time on a connection in constant use. The same holds for any other \
     response if the backend has served more connections than are in use. Meanwhile other connections are used or \
     opened. 0 disables the wait.";
backend_retries: Natural = "0" { units = "retries", min = "0", max = "10" }
    "Number of times that a fetch is made again without VCL if it has failed before any byte of a response arrived. \
     A director then chooses again. The method must be idempotent (GET, HEAD, PUT, DELETE, OPTIONS, TRACE) unless \
     no connection was open; a body must not have been read from the client. See backend_retry_budget.";
backend_retry_budget: Natural = "20" { units = "percent", min = "0", max = "100" }
    "Most retries by backend_retries as a share of the fetches from a backend or director, in addition to ten after a time \
     without any. It keeps retries from multiplying an overload.";
backend_suspicion_time: Duration = "60" { units = "seconds", min = "0" }
    "Time during which no connection of a backend is used for a second request, after that backend sent \
     bytes that belong to no request.";
backend_wait_timeout: Timeout = "0.000" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "Maximum time that a fetch waits for a connection when its backend has reached max_connections. VCL can \
     override it for a backend. More than a few seconds are not recommended.";
backend_wait_limit: Uint = "0" { min = "0", flags = EXPERIMENTAL }
    "Maximum number of fetches that wait for a connection to one backend. VCL can override it for a backend. \
     With 0, none may wait.";
ssl_accept_truncation: Bool = "off" { }
    "Accept a response body that ends with the connection if a backend with TLS closes the connection without \
     announcing it (close_notify). Anyone on the way to the backend can end a connection like this, so the body may \
     be truncated. When off, such a response fails, and is not cached. Varnish accepts it.";
max_retries: Uint = "4" { units = "retries", min = "0", flags = DELAYED_EFFECT }
    "Maximum number of retries of one fetch.";
dns_servers: Text = "" { }
    "Addresses of the name servers for the hosts of backends, separated by commas or spaces, each with an optional \
     port. If empty, those of /etc/resolv.conf are used, with its search list and options. /etc/hosts has priority in \
     any case.";
dns_ttl_min: Duration = "1.000" { units = "seconds", min = "0.1" }
    "Shortest time between two lookups of a backend's host, if its TTL is shorter.";
dns_ttl_max: Duration = "3600.000" { units = "seconds", min = "1" }
    "Longest time between two lookups of a backend's host, if its TTL is longer.";
dns_retry: Duration = "5.000" { units = "seconds", min = "0.1" }
    "Time after a failed lookup of a backend's host until the next one. Meanwhile the last addresses are used.";
dns_strict: Bool = "off" { units = "bool", flags = MUST_RELOAD }
    "Refuse a VCL if the host of a backend cannot be resolved, or has more than one IPv4 and one IPv6 address, as \
     Varnish does. When off, such a VCL is loaded with a warning. The backend is sick until its host is resolved.";
prefer_ipv6: Bool = "off" { units = "bool" }
    "Try the IPv6 address first if a backend has both IPv4 and IPv6.";
pcre2_jit_compilation: Bool = "on" { units = "bool" }
    "Compile regular expressions to machine code if possible.";
pcre2_match_limit: Uint = "10000" { min = "1" }
    "Maximum number of steps of one regular-expression match, which limits its CPU time.";
pcre2_depth_limit: Uint = "20" { min = "1" }
    "Maximum recursion depth of one regular-expression match. Exceeding it is logged as VCL_Error.";
    } };
}
