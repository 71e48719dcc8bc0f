# A portal: a file for each concern, the context of the user in a hash of its own, limits, tags, devices.
vcl 4.1;

import header;
import std;
import str;
import var;
import vsthrottle;
import xkey;

include "./portal_devices.vcl";

backend default { .host = "127.0.0.1"; .port = "8080"; .proxy_header = 1; }
backend none_at_all none;

acl invalidators +log -pedantic { "localhost"; "192.0.2.0/24"; ("no.such.host.invalid"); }

sub vcl_recv {
    call devices_recv;
    if (vsthrottle.is_denied("api:" + client.identity, 15, 10s, 30s)) {
        return (synth(429, "Too Many Requests"));
    }
    if (req.method == "PURGEKEYS") {
        if (client.ip !~ invalidators) {
            return (synth(405, "Not allowed"));
        }
        if (req.http.xkey-softpurge) {
            set req.http.n-gone = xkey.softpurge(req.http.xkey-softpurge);
        } else {
            set req.http.n-gone = xkey.purge(req.http.xkey-purge);
        }
        return (synth(200, "Purged " + req.http.n-gone));
    }
    if (req.url ~ "^/nowhere/") {
        set req.backend_hint = none_at_all;
    }
    call context_recv;
    var.set("began", now);
    if (str.startswith(req.url, "/api/") && std.integer(req.http.x-version, 0) >= 2) {
        return (pass);
    }
}

# The context is asked for once, and the request begins again with its hash.
sub context_recv {
    if (req.restarts == 0) {
        if (req.http.accept ~ "application/vnd.user-context-hash" || req.http.x-user-context-hash) {
            return (synth(400));
        }
        if (req.http.cookie && (req.method == "GET" || req.method == "HEAD")) {
            set req.http.x-url = req.url;
            set req.http.x-accept = req.http.accept;
            set req.http.accept = "application/vnd.user-context-hash";
            set req.url = "/_user_context_hash";
            return (hash);
        }
    } elseif (req.restarts > 0 && req.http.accept == "application/vnd.user-context-hash") {
        set req.url = req.http.x-url;
        unset req.http.x-url;
        set req.http.accept = req.http.x-accept;
        unset req.http.x-accept;
        return (hash);
    }
}

sub vcl_backend_response {
    if (bereq.http.accept ~ "application/vnd.user-context-hash" && beresp.status >= 500) {
        return (abandon);
    }
    set beresp.http.x-url = bereq.url;
    header.remove(beresp.http.set-cookie, "^track=");
    if (beresp.http.x-ttl) {
        set beresp.ttl = std.duration(beresp.http.x-ttl + "s", 0s);
        set beresp.storage = storage.Transient;
    }
}

sub vcl_deliver {
    if (req.restarts == 0 && resp.http.content-type ~ "application/vnd.user-context-hash") {
        set req.http.x-user-context-hash = resp.http.x-user-context-hash;
        return (restart);
    }
    set resp.http.x-seconds = now - var.get_duration("began") - req.time;
    if (client.ip ~ invalidators && resp.http.x-debug) {
        set resp.http.x-cache = regsub("" + obj.hits, "^0$", "MISS") + " " + req.http.x-device;
    } else {
        unset resp.http.xkey;
    }
    unset resp.http.x-url;
}
