# A shop: tags for invalidation, a vary cookie in the hash, marketing parameters stripped, grace by health.
vcl 4.0;

import std;

backend default {
    .host = "127.0.0.1";
    .port = "8080";
    .first_byte_timeout = 600s;
    .probe = {
        .url = "/health.php";
        .timeout = 2s;
        .interval = 5s;
        .window = 10;
        .threshold = 5;
    }
}

acl purge {
    "localhost";
    "10.0.0.0"/8;
    ! "10.9.0.0"/16;
}

sub vcl_recv {
    if (req.restarts > 0) {
        set req.hash_always_miss = true;
    }
    if (req.url ~ "\?.+&.+") {
        set req.url = std.querysort(req.url);
    }
    if (req.method == "PURGE") {
        if (client.ip !~ purge) {
            return (synth(405, "Method not allowed"));
        }
        if (!req.http.X-Tags && !req.http.X-Pool) {
            return (synth(400, "X-Tags or X-Pool is needed"));
        }
        if (req.http.X-Tags) {
            ban("obj.http.X-Tags ~ " + req.http.X-Tags);
        }
        return (synth(200, "Purged"));
    }
    if (req.method != "GET" && req.method != "HEAD" && req.method != "POST") {
        /* Whatever it is, the origin may know. */
        return (pipe);
    }
    set req.http.grace = "none";
    set req.url = regsub(req.url, "^http[s]?://", "");
    std.collect(req.http.Cookie);
    if (req.url ~ "(\?|&)(gclid|fbclid|mc_[a-z]+|utm_[a-z]+)=") {
        set req.url = regsuball(req.url, "(gclid|fbclid|mc_[a-z]+|utm_[a-z]+)=[-_A-z0-9+()%.]+&?", "");
        set req.url = regsub(req.url, "[?|&]+$", "");
    }
    if (req.url ~ "/graphql" && !req.http.X-Cache-Id && req.http.Authorization ~ "^Bearer") {
        return (pass);
    }
    return (hash);
}

sub vcl_hash {
    if ((req.url !~ "/graphql" || !req.http.X-Cache-Id) && req.http.cookie ~ "X-Vary=") {
        hash_data(regsub(req.http.cookie, "^.*?X-Vary=([^;]+);*.*$", "\1"));
    }
    if (req.http.X-Forwarded-Proto) {
        hash_data(req.http.X-Forwarded-Proto);
    }
    if (req.url ~ "/graphql") {
        call headers_of_graphql;
    }
}

sub headers_of_graphql {
    if (req.http.Store) {
        hash_data(req.http.Store);
    }
}

sub vcl_backend_response {
    if (beresp.status == 404 || beresp.status >= 500) {
        set beresp.uncacheable = true;
        set beresp.ttl = 120s;
        return (deliver);
    }
    set beresp.grace = 3d;
    if (beresp.http.content-type ~ "text") {
        set beresp.do_esi = true;
    }
    if (bereq.url ~ "\.js$" || beresp.http.content-type ~ "text|json|css") {
        set beresp.do_gzip = true;
    }
    if (beresp.ttl > 0s && (bereq.method == "GET" || bereq.method == "HEAD")) {
        unset beresp.http.set-cookie;
    }
    if (beresp.ttl <= 0s || beresp.http.Surrogate-control ~ "no-store"
        || (!beresp.http.Surrogate-Control && beresp.http.Cache-Control ~ "no-cache|no-store")
        || beresp.http.Vary == "*") {
        set beresp.ttl = 120s;
        set beresp.uncacheable = true;
    }
    return (deliver);
}

sub vcl_deliver {
    if (obj.uncacheable) {
        set resp.http.X-Cache = "UNCACHEABLE";
    } else if (obj.hits) {
        set resp.http.X-Cache = "HIT " + obj.hits;
        set resp.http.Grace = req.http.grace;
    } else {
        set resp.http.X-Cache = "MISS";
    }
    unset resp.http.X-Tags;
}

sub vcl_hit {
    if (obj.ttl >= 0s) {
        return (deliver);
    }
    if (std.healthy(req.backend_hint)) {
        if (obj.ttl + 300s > 0s) {
            set req.http.grace = "normal (healthy server)";
            return (deliver);
        } else {
            return (restart);
        }
    } else {
        set req.http.grace = "unlimited (unhealthy server)";
        return (deliver);
    }
}
