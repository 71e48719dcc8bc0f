vcl 4.1;

import std;
import directors;

include "./shop-parts.vcl";

probe health { .url = "/health"; }
backend app { .host = "app.example"; .port = "8080"; .probe = health; .first_byte_timeout = 5s; }
backend images { .host = "images.example"; .ssl = 1; }
# The same address as another backend.
backend slow { .host = "app.example"; .port = "8080"; }

sub vcl_init {
    new pair = directors.round_robin();
    pair.add_backend(app);
    pair.add_backend(images);
}

sub vcl_recv {
    unset req.http.X-From;
    set req.http.X-From = client.ip;
    if (req.method == "PURGE") {
        if (client.ip !~ office) { return (synth(405, "Not allowed")); }
        return (purge);
    }
    if (req.url ~ "^/images/") {
        set req.backend_hint = images;
        unset req.http.Cookie;
    } elseif (req.url ~ "^/reports/") {
        set req.backend_hint = slow;
    } elseif (req.url ~ "^/pair/") {
        set req.backend_hint = pair.backend();
    }
    if (req.url ~ "^/admin") {
        return (pass);
    }
    if (req.url == "/pipe") {
        return (pipe);
    }
    if (req.url == "/again" && req.restarts == 0) {
        return (restart);
    }
    if (req.url == "/loop") {
        return (restart);
    }
    if (req.url == "/fail") {
        return (fail);
    }
    if (req.url == "/slow-regex" && req.http.X-Text ~ "^(a+)+$") {
        return (synth(200, "matched"));
    }
    std.log("recv " + req.url);
}

sub vcl_backend_response {
    set beresp.grace = 1h;
    if (bereq.url == "/retry" && bereq.retries == 0) {
        return (retry);
    }
    if (beresp.status >= 500 && bereq.is_bgfetch) {
        return (abandon);
    }
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else {
        set resp.http.X-Cache = "MISS";
    }
    unset resp.http.Via;
}
