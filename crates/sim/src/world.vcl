# The VCL of simulated worlds. Words in capitals are replaced.
vcl 4.1;
import std;
import vtc;

DECLARATION
backend one {
    .path = "PLACE/one"; .first_byte_timeout = 4s; .between_bytes_timeout = 2s; .connect_timeout = 1s;
    PROBE
}
backend two {
    .path = "PLACE/two"; .first_byte_timeout = 4s; .between_bytes_timeout = 2s; .max_connections = 4;
    .wait_limit = 10; .wait_timeout = 1s;
    PROBE
}

sub vcl_recv {
    if (req.url ~ "[13579]$") { set req.backend_hint = two; }
    if (req.url ~ "^/pipe/") { return (pipe); }
    if (req.method == "PURGE") { return (purge); }
    if (req.method == "BAN") {
        ban("req.url == " + req.url);
        return (synth(200));
    }
    if (req.url ~ "^/synth/") { return (synth(710)); }
    if (req.url ~ "^/slow/[1-4]" && req.restarts == 0) { vtc.sleep(50ms); }
    if (req.url ~ "^/pass/") { return (pass); }
    if (std.healthy(req.backend_hint)) { set req.grace = GRACE; }
    return (hash);
}
sub vcl_backend_fetch {
    if (bereq.url ~ "^/slow/[02]") { vtc.sleep(100ms); }
}
sub vcl_backend_response {
    set beresp.http.X-Path = bereq.url;
    set beresp.grace = 60s;
    set beresp.keep = KEEP;
    if (beresp.status >= 500) {
        if (bereq.is_bgfetch) { return (abandon); }
        if (bereq.retries < RETRIES) { return (retry); }
    }
    if (bereq.url ~ "^/slow/[03]") { vtc.sleep(70ms); }
    if (beresp.was_304 && bereq.url ~ "[05]$") { vtc.sleep(1s); }
    if (bereq.url ~ "[37]$") { set beresp.do_stream = false; }
    if (bereq.url ~ "^/zip/") { set beresp.do_gzip = true; }
    if (bereq.url ~ "^/unzip/") { set beresp.do_gunzip = true; }
    if (bereq.url ~ "^/(esi|part)/") {
        set beresp.do_esi = true;
        if (bereq.url ~ "[25]$") { set beresp.do_gzip = true; }
        if (bereq.url ~ "[146]$") { set beresp.do_gunzip = true; }
    }
    if (bereq.url ~ "^/hfm/") { set beresp.uncacheable = true; set beresp.ttl = 2s; }
    if (bereq.url ~ "^/hfp/") { return (pass(2s)); }
}
sub vcl_backend_error {
    if (bereq.retries < RETRIES) { return (retry); }
    set beresp.body = "!";
    return (deliver);
}
sub vcl_deliver {
    if (req.url ~ "^/again/" && req.restarts == 0) { return (restart); }
    if (req.url ~ "^/slow/[04]") { vtc.sleep(30ms); }
    set resp.http.X-Request = req.http.X-Request;
    set resp.http.X-Client = client.ip;
}
sub vcl_synth {
    set resp.http.X-Request = req.http.X-Request;
    set resp.http.X-Client = client.ip;
    set resp.body = "!";
    return (deliver);
}
