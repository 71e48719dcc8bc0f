// A blog: cookies of guests removed one by one, static files, WebSockets, redirects by status numbers.
vcl 4.1;

import std;
import cookie;
import directors;

probe alive {
    .request =
        "HEAD / HTTP/1.1"
        "Host: localhost"
        "Connection: close"
        "User-Agent: health";
    .interval = 5s;
    .timeout = 1s;
    .window = 5;
    .threshold = 3;
}

backend one { .host = "127.0.0.1"; .port = "8081"; .max_connections = 300; .probe = alive; }
backend two { .host = "127.0.0.1"; .port = "8082"; .connect_timeout = 5s; .between_bytes_timeout = 2.5s; .probe = alive; }

acl editors { "127.0.0.1"; "::1"; "192.168.0.0"/16; }

sub vcl_init {
    new pool = directors.round_robin();
    pool.add_backend(one);
    pool.add_backend(two);
    new spare = directors.fallback();
    spare.add_backend(pool.backend());
    return (ok);
}

sub vcl_recv {
    set req.backend_hint = spare.backend();
    set req.http.Host = regsub(req.http.Host, ":[0-9]+", "");
    unset req.http.proxy;
    if (req.method == "PURGE") {
        if (!client.ip ~ editors) {
            return (synth(405, "This IP is not allowed to send PURGE requests."));
        }
        return (purge);
    }
    if (req.http.Upgrade ~ "(?i)websocket") {
        return (pipe);
    }
    if (req.url ~ "\#") {
        set req.url = regsub(req.url, "\#.*$", "");
    }
    if (req.http.host == "www.example.com") {
        return (synth(720, "https://example.com" + req.url));
    }
    if (req.url ~ "^[^?]*\.(7z|bmp|css|gif|ico|jpe?g|js|png|svgz?|webp|woff2?|xml|zip)(\?.*)?$") {
        unset req.http.Cookie;
        return (hash);
    }
    if (req.url ~ "wp-(login|admin)" || req.url ~ "preview=true" || req.http.Authorization) {
        return (pass);
    }
    if (req.http.Cookie) {
        cookie.parse(req.http.Cookie);
        cookie.filter_re("^(_ga|_gat|__utm.|has_js)$");
        set req.http.Cookie = cookie.get_string();
        if (req.http.Cookie ~ "^\s*$") {
            unset req.http.Cookie;
        }
    }
    set req.http.Surrogate-Capability = "key=ESI/1.0";
}

sub vcl_pipe {
    if (req.http.upgrade) {
        set bereq.http.upgrade = req.http.upgrade;
        set bereq.http.connection = req.http.connection;
    }
    return (pipe);
}

sub vcl_backend_response {
    if (beresp.http.Surrogate-Control ~ "ESI/1.0") {
        unset beresp.http.Surrogate-Control;
        set beresp.do_esi = true;
    }
    if (beresp.status == 301 || beresp.status == 302) {
        set beresp.http.Location = regsub(beresp.http.Location, ":[0-9]+", "");
    }
    if (bereq.uncacheable) {
        return (deliver);
    } elseif (beresp.ttl <= 0s || beresp.http.Set-Cookie || beresp.http.Vary == "*") {
        set beresp.ttl = std.duration(beresp.http.X-Ttl, 120s);
        set beresp.uncacheable = true;
        return (deliver);
    } elsif (beresp.status == 500 || beresp.status >= 502 && beresp.status <= 504) {
        return (abandon);
    }
    set beresp.grace = 6h;
    set beresp.keep = 1d;
}

sub vcl_purge {
    if (req.method != "PURGE") {
        set req.http.X-Purge = "Yes";
        return (restart);
    }
}

sub vcl_synth {
    if (resp.status == 720) {
        set resp.http.Location = resp.reason;
        set resp.status = 301;
        set resp.reason = "Moved";
        return (deliver);
    }
    set resp.http.Content-Type = "text/html; charset=utf-8";
    synthetic({"<!DOCTYPE html>
<title>"} + resp.status + {"</title>
<h1>"} + resp.reason + {"</h1><p>XID: "} + req.xid + "</p>");
    return (deliver);
}

sub vcl_backend_error {
    set beresp.http.Retry-After = "5";
    set beresp.body = """<h1>"Guru" away</h1>""" + beresp.reason;
    return (deliver);
}
