"""VCL of the kinds that sites use, to measure the cost of VCL on a hit."""

HEAD = 'vcl 4.1;\nbackend default {{ .host = "127.0.0.1"; .port = "{port}"; }}\n'

# Every subroutine on the path of a hit returns, so that the built-in VCL does not run.
MINIMAL = """
sub vcl_recv { return (hash); }
sub vcl_hash { hash_data(req.url); hash_data(req.http.host); return (lookup); }
sub vcl_hit { return (deliver); }
sub vcl_deliver { return (deliver); }
"""

BUILTIN = ""

TEN_HEADERS_FIVE_REGEXES = "sub vcl_recv {\n" + "".join(
    f'    set req.http.x-bench-{i} = "value {i}";\n    if (req.http.x-bench-{i} == "other") {{ return (synth(500)); }}\n'
    for i in range(10)) + "".join(
    f'    if (req.url ~ "{regex}") {{ return (synth(500)); }}\n'
    for regex in (r"^/(admin|login)/", r"\.(png|gif|jpe?g)$", r"[?&]session=[0-9a-f]+", r"^/api/v[0-9]+/",
                  r"/checkout/?$")) + "}\n"

# Resembles the VCL of online shops: purging, marketing parameters, cookies, static files, debug headers.
SHOP = r"""
import std;
acl purgers { "localhost"; "127.0.0.1"; "10.0.0.0"/8; }
sub vcl_recv {
    if (req.restarts == 0) {
        if (req.http.x-forwarded-for) {
            set req.http.x-forwarded-for = req.http.x-forwarded-for + ", " + client.ip;
        } else {
            set req.http.x-forwarded-for = client.ip;
        }
    }
    if (req.method == "PURGE") {
        if (client.ip !~ purgers) { return (synth(405, "Not allowed")); }
        return (purge);
    }
    if (req.method != "GET" && req.method != "HEAD") { return (pass); }
    if (req.url ~ "/(checkout|customer|cart)") { return (pass); }
    if (req.url ~ "^/(pub/)?health_check\.php$") { return (pass); }
    set req.http.grace = "none";
    set req.url = regsub(req.url, "^http[s]?://[^/]+", "");
    std.collect(req.http.cookie);
    if (req.url ~ "[?&](utm_[a-z]+|gclid|fbclid|mc_[a-z]+|_ga|cx|ie|cof|siteurl)=") {
        set req.url = regsuball(req.url, "(utm_[a-z]+|gclid|fbclid|mc_[a-z]+|_ga|cx|ie|cof|siteurl)=[-_A-Za-z0-9+()%.]+&?", "");
        set req.url = regsub(req.url, "[?&]+$", "");
    }
    if (req.url ~ "^/(pub/)?(media|static)/") {
        unset req.http.https;
        unset req.http.cookie;
    }
    if (req.http.authorization ~ "^Bearer") { return (pass); }
    return (hash);
}
sub vcl_hash {
    if (req.http.cookie ~ "X-Shop-Vary=") {
        hash_data(regsub(req.http.cookie, "^.*?X-Shop-Vary=([^;]+);*.*$", "\1"));
    }
}
sub vcl_deliver {
    if (obj.uncacheable) { set resp.http.x-shop-cache = "UNCACHEABLE"; }
    elseif (obj.hits > 0) { set resp.http.x-shop-cache = "HIT"; }
    else { set resp.http.x-shop-cache = "MISS"; }
    if (resp.http.cache-control !~ "private" && req.url !~ "^/(pub/)?(media|static)/") {
        set resp.http.pragma = "no-cache";
        set resp.http.expires = "-1";
        set resp.http.cache-control = "no-store, no-cache, must-revalidate, max-age=0";
    }
    unset resp.http.server;
    unset resp.http.x-powered-by;
    unset resp.http.via;
    unset resp.http.link;
}
"""

KINDS = {"minimal": MINIMAL, "builtin": BUILTIN, "headers": TEN_HEADERS_FIVE_REGEXES, "shop": SHOP}


def text(kind, origin_port):
    return HEAD.format(port=origin_port) + KINDS[kind]


def with_statements(count):
    line = '    if (req.url == "/nowhere") { set req.http.x-n = "1"; }\n'
    return HEAD.format(port=1) + "sub vcl_recv {\n" + line * count + "}\n"


def of_lines(lines):
    """Returns a VCL of about this many lines: a subroutine for each site with its rules."""
    sites = range((lines + 29) // 30)
    subs = "".join(
        f"sub site{i} {{\n" + "".join(
            f'    if (req.url ~ "^/section{i}/{rule}/") {{\n        set req.http.x-section = "s{i}r{rule}";\n    }}\n'
            for rule in range(8)) + "}\n" for i in sites)
    calls = "".join(f'    if (req.http.host == "site{i}.example") {{\n        call site{i};\n    }}\n' for i in sites)
    return HEAD.format(port=1) + f"{subs}sub vcl_recv {{\n{calls}}}\n"
