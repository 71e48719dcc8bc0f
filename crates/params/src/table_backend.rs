//! Parameters of the backend side: connections, timeouts and retries.

macro_rules! backend_params {
    ([$next:ident $($rest:ident)*] $($rows:tt)*) => { $next! { [$($rest)*] $($rows)*

connect_timeout: Timeout = "3.500" { units = "seconds", min = "0" }
    "How long connecting to a backend may take. VCL can say otherwise for a backend or a request.";
first_byte_timeout: Timeout = "60" { units = "seconds", min = "0" }
    "How long a backend may take to send the first byte of its response, and before that to read further \
     bytes of its request. VCL can say otherwise for a backend or a request. Not for pipes.";
between_bytes_timeout: Timeout = "60" { units = "seconds", min = "0" }
    "How long a backend may pause within its response. VCL can say otherwise for a backend or a \
     request. Not for pipes.";
backend_idle_timeout: Duration = "60" { units = "seconds", min = "1" }
    "An unused backend connection is closed after this long.";
backend_local_error_holddown: Duration = "10.000" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "After a failure to connect that is our own fault (EADDRNOTAVAIL, EACCES, EPERM), do not try again \
     for this long.";
backend_remote_error_holddown: Duration = "0.250" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "After a failure to connect that is the backend's or the network's fault (ECONNREFUSED, \
     ENETUNREACH), do not try again for this long.";
backend_head_timeout: Timeout = "60" { units = "seconds", min = "0" }
    "How long a backend may take from the first to the last byte of its response head. No head takes longer \
     than first_byte_timeout and between_bytes_timeout together, whatever is set here.";
backend_quiet_time: Duration = "0.050" { units = "seconds", min = "0", max = "10" }
    "A backend connection is not used again before it was quiet for this long where more bytes may follow: \
     after a response without a body by rule (to HEAD, or with status 204 or 304), after the first response \
     of a backend, and for a twentieth of the time on a connection in steady use; after any other response too, \
     where the backend was seen to serve more connections than are in use. Other connections are used or \
     opened meanwhile. 0 turns this off.";
backend_suspicion_time: Duration = "60" { units = "seconds", min = "0" }
    "After a backend sent bytes that belong to no request, none of its connections is used for a second \
     request for this long.";
backend_wait_timeout: Timeout = "0.000" { units = "seconds", min = "0", flags = EXPERIMENTAL }
    "How long a fetch waits for a connection when its backend has reached max_connections. VCL can say \
     otherwise for a backend. More than a few seconds is not advisable.";
backend_wait_limit: Uint = "0" { min = "0", flags = EXPERIMENTAL }
    "How many fetches may wait for a connection to one backend. VCL can say otherwise for a backend. \
     0 lets none wait.";
max_retries: Uint = "4" { units = "retries", min = "0", flags = DELAYED_EFFECT }
    "How often one fetch may be retried.";
prefer_ipv6: Bool = "off" { units = "bool" }
    "Which address of a backend that has both is tried first.";
pcre2_jit_compilation: Bool = "on" { units = "bool" }
    "Compile regular expressions to machine code where that is possible.";
pcre2_match_limit: Uint = "10000" { min = "1" }
    "How many steps one regular-expression match may take, which bounds its CPU time.";
pcre2_depth_limit: Uint = "20" { min = "1" }
    "How deep one regular-expression match may recurse. Exceeding it shows as VCL_Error in the log.";
    } };
}
