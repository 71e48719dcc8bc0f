// Origins that move, and selection by sets: hosts that a request decides, services, patterns, prefixes.
vcl 4.1;

import directors;
import dynamic;
import re2;
import selector;
import std;

probe health { .url = "/health"; .interval = 5s; }

acl ipv4_only { "0.0.0.0"/0; }

backend default none;
backend proxy { .host = "127.0.0.1"; .port = "8080"; }
backend shop { .host = "shop.internal.example"; .max_age = 5m; .max_requests = 10000; }
backend files { .host = "files.internal.example"; .port = "8081"; }

sub vcl_init {
    new servers = dynamic.resolver(set_from_os = true, parallel = 8);
    servers.set_timeout(2s);
    new simple = dynamic.director(port = "80");
    new full = dynamic.director(
        port = "https", host_header = "www.example.com", share = HOST, probe = health, whitelist = ipv4_only,
        ttl = 10s, connect_timeout = 1s, first_byte_timeout = 30s, between_bytes_timeout = 10s,
        domain_usage_timeout = 60s, first_lookup_timeout = 5s, max_connections = 100, proxy_header = 1,
        resolver = servers.use(), ttl_from = dns, retry_after = 10s, via = proxy, keep = 3, authority = "a.example");
    new shared = dynamic.director(port = 8080, ttl = 5m, share = DIRECTOR);
    simple.debug(true);
    new pool = directors.round_robin();
    pool.add_backend(simple.backend("a.example.com"));
    pool.add_backend(simple.backend("b.example.com", "8081"));

    new app = re2.set(anchor = start, posix_syntax = true);
    app.add("/shop/([0-9]+)", string = "shop", backend = shop);
    app.add("/files/", save = true, integer = 3, backend = files);
    app.compile();
    new version = re2.regex("[?&]v=([0-9]+)", case_sensitive = false, max_mem = 16777216);
    new prefix = selector.set(case_sensitive = false);
    prefix.add("/static/", string = "/assets/", backend = files, integer = 2);
    prefix.add("/shop/", regex = "^/shop/[a-z]+$", backend = shop);
    prefix.create_stats();
}

sub vcl_recv {
    if (prefix.hasprefix(req.url)) {
        set req.backend_hint = prefix.backend(select = LONGEST);
        set req.http.X-Prefix = prefix.element(select = SHORTEST) + prefix.which(select = LONGEST);
    } else if (app.match(req.url)) {
        if (app.nmatches() > 1 && app.matched(2)) {
            std.log("several: " + app.which(select = FIRST));
        }
        set req.backend_hint = app.backend(select = FIRST);
        set req.http.X-App = app.string(select = LAST);
    } else if (req.http.Host ~ "^api\.") {
        set req.backend_hint = shared.service("_api._tcp.example.com");
    } else if (req.restarts > 0) {
        set req.backend_hint = pool.backend();
    } else {
        set req.backend_hint = simple.backend(req.http.Host, port = "81");
    }
    if (version.match(req.url)) {
        set req.http.X-Version = version.backref(1, "none");
    }
    set req.url = re2.sub("//+", req.url, "/");
    if (re2.match("(?i)bot|crawler", req.http.User-Agent)) {
        set req.http.X-Kind = re2.extract("([a-z]+)bot", req.http.User-Agent, "\1", "robot");
    }
}

sub vcl_backend_fetch {
    if (bereq.retries > 0) {
        set bereq.backend = full.backend(bereq.http.Host);
    }
}

sub vcl_backend_response {
    set beresp.stale_if_error = 1d;
    if (beresp.status >= 500 && bereq.retries < 1) {
        return (retry);
    }
}
