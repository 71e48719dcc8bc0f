# The built-in VCL: what happens where your own VCL does not return.
#
# Every subroutine of the flow calls a vcl_builtin_ part. A subroutine of that name in your VCL runs
# before the text here, and a return in it skips that text.

vcl 4.0;

# The client's side.

sub vcl_recv {
    call vcl_builtin_recv;
    return (hash);
}

sub vcl_builtin_recv {
    call vcl_req_url;
    call vcl_req_host;
    call vcl_req_method;
    call vcl_req_authorization;
    call vcl_req_cookie;
}

# For your own rules about targets, as in Varnish 9.
sub vcl_req_url {
}

# Host names have no case; HTTP/1.1 requires one.
sub vcl_req_host {
    if (req.http.host ~ "[[:upper:]]") {
        set req.http.host = req.http.host.lower();
    }
    if (!req.http.host && req.esi_level == 0 && req.proto == "HTTP/1.1") {
        return (synth(400));
    }
}

sub vcl_req_method {
    if (req.method == "PRI") {
        # The preface of HTTP/2, which has no place inside a connection.
        return (synth(405));
    }
    if (req.method == "CONNECT") {
        # Only a VCL that pipes it by itself opens tunnels.
        return (synth(405));
    }
    if (req.method != "GET" &&
        req.method != "HEAD" &&
        req.method != "PUT" &&
        req.method != "POST" &&
        req.method != "TRACE" &&
        req.method != "OPTIONS" &&
        req.method != "DELETE" &&
        req.method != "PATCH") {
        if (param.rfc9111) {
            # The response may invalidate what is cached, so it must be seen.
            return (pass);
        }
        # A method nobody knows: let the two sides talk.
        return (pipe);
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
}

# Answers to known people are not for everyone. With RFC 9111, the backend decides which are.
sub vcl_req_authorization {
    if (req.http.Authorization && !param.rfc9111) {
        return (pass);
    }
}

sub vcl_req_cookie {
    if (req.http.Cookie && !param.rfc9111) {
        return (pass);
    }
}

sub vcl_pipe {
    call vcl_builtin_pipe;
    # bereq.http.connection is "close" here, so that later requests on this connection do not follow
    # to the same backend unseen. Unset it if they may.
    return (pipe);
}

sub vcl_builtin_pipe {
}

sub vcl_pass {
    call vcl_builtin_pass;
    return (fetch);
}

sub vcl_builtin_pass {
}

sub vcl_hash {
    call vcl_builtin_hash;
    return (lookup);
}

sub vcl_builtin_hash {
    hash_data(req.url);
    if (req.http.host) {
        hash_data(req.http.host);
    } else {
        hash_data(server.ip);
    }
}

sub vcl_purge {
    call vcl_builtin_purge;
    return (synth(200, "Purged"));
}

sub vcl_builtin_purge {
}

sub vcl_hit {
    call vcl_builtin_hit;
    return (deliver);
}

sub vcl_builtin_hit {
}

sub vcl_miss {
    call vcl_builtin_miss;
    return (fetch);
}

sub vcl_builtin_miss {
}

sub vcl_deliver {
    call vcl_builtin_deliver;
    return (deliver);
}

sub vcl_builtin_deliver {
}

# Errors of Lacquer's own, 500 and 503, come here too.
sub vcl_synth {
    call vcl_builtin_synth;
    return (deliver);
}

sub vcl_builtin_synth {
    set resp.http.Content-Type = "text/html; charset=utf-8";
    set resp.http.Retry-After = "5";
    set resp.body = {"<!DOCTYPE html>
<html>
  <head>
    <title>"} + resp.status + " " + resp.reason + {"</title>
  </head>
  <body>
    <h1>Error "} + resp.status + " " + resp.reason + {"</h1>
    <p>"} + resp.reason + {"</p>
    <h3>Guru Meditation:</h3>
    <p>XID: "} + req.xid + {"</p>
    <hr>
    <p>Varnish cache server</p>
  </body>
</html>
"};
}

# The backend's side.

sub vcl_backend_fetch {
    call vcl_builtin_backend_fetch;
    return (fetch);
}

sub vcl_builtin_backend_fetch {
    if (bereq.method == "GET") {
        unset bereq.body;
    }
}

# The backend said 304: what is cached is still good.
sub vcl_backend_refresh {
    call vcl_builtin_backend_refresh;
    return (merge);
}

sub vcl_builtin_backend_refresh {
    call vcl_refresh_valid;
    call vcl_refresh_conditions;
    call vcl_refresh_status;
}

# A 304 must not bring back an object that was purged or banned meanwhile.
sub vcl_refresh_valid {
    if (!obj_stale.is_valid) {
        return (error(503, "Invalid object for refresh"));
    }
}

# A 304 answers a condition.
sub vcl_refresh_conditions {
    if (!bereq.http.if-modified-since &&
        !bereq.http.if-none-match) {
        return (error(503, "Unexpected 304"));
    }
}

# For other statuses, only your own VCL makes a request conditional. If it wants to renew such
# objects, it returns here.
sub vcl_refresh_status {
    if (obj_stale.status != 200) {
        return (error(503, "Invalid object for refresh (status)"));
    }
}

sub vcl_backend_response {
    call vcl_builtin_backend_response;
    return (deliver);
}

sub vcl_builtin_backend_response {
    call vcl_beresp_range;
    if (bereq.uncacheable) {
        return (deliver);
    }
    call vcl_beresp_stale;
    call vcl_beresp_cookie;
    call vcl_beresp_control;
    call vcl_beresp_vary;
}

# RFC 9111 keeps a stale answer that can be validated.
sub vcl_beresp_stale {
    if (beresp.ttl <= 0s && !(param.rfc9111 && beresp.is_storable)) {
        call vcl_beresp_hitmiss;
    }
}

sub vcl_beresp_cookie {
    if (beresp.http.Set-Cookie && !param.rfc9111) {
        call vcl_beresp_hitmiss;
    }
}

sub vcl_beresp_control {
    if (param.rfc9111) {
        if (!beresp.is_storable) {
            call vcl_beresp_hitmiss;
        }
    } else if (beresp.http.Surrogate-control ~ "(?i)no-store" ||
        (!beresp.http.Surrogate-Control &&
          beresp.http.Cache-Control ~ "(?i:no-cache|no-store|private)")) {
        call vcl_beresp_hitmiss;
    }
}

sub vcl_beresp_vary {
    if (beresp.http.Vary ~ "(^|,)[ \t]*[*][ \t]*(,|$)") {
        call vcl_beresp_hitmiss;
    }
}

# Content-Range means something with these two only (RFC 9110, section 14.4). RFC 9111 stores all fields.
sub vcl_beresp_range {
    if (beresp.status != 206 && beresp.status != 416 && !param.rfc9111) {
        unset beresp.http.Content-Range;
    }
}

# Remember for a while that this is not cached, so that nobody waits for it in line.
sub vcl_beresp_hitmiss {
    set beresp.ttl = param.uncacheable_ttl;
    set beresp.uncacheable = true;
    return (deliver);
}

sub vcl_backend_error {
    call vcl_builtin_backend_error;
    return (deliver);
}

sub vcl_builtin_backend_error {
    set beresp.http.Content-Type = "text/html; charset=utf-8";
    set beresp.http.Retry-After = "5";
    set beresp.body = {"<!DOCTYPE html>
<html>
  <head>
    <title>"} + beresp.status + " " + beresp.reason + {"</title>
  </head>
  <body>
    <h1>Error "} + beresp.status + " " + beresp.reason + {"</h1>
    <p>"} + beresp.reason + {"</p>
    <h3>Guru Meditation:</h3>
    <p>XID: "} + bereq.xid + {"</p>
    <hr>
    <p>Varnish cache server</p>
  </body>
</html>
"};
}

# Loading and discarding.

sub vcl_init {
    return (ok);
}

sub vcl_fini {
    return (ok);
}
