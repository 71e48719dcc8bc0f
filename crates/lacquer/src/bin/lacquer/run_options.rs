//! The options of `lacquer run`.

use crate::args::Opt;
use crate::rules;

const BASIC: [Opt; 16] = [
    Opt::many(
        "listen",
        "ADDR",
        "address for clients: 8000, :8000, 127.0.0.1:8000, [::1]:8000 or /path/socket; with \
         ,proxy for connections that begin with a PROXY header; default :6081, and :80 with --https",
    ),
    Opt::many(
        "https",
        "NAMES",
        "serve https, with a certificate of Let's Encrypt for these names: example.org;www.example.org; http redirects to it. `localhost` has a certificate of your own authority",
    ),
    Opt::many("https-listen", "ADDR", "address for https, and for HTTP/3 on the same UDP port; default :443"),
    Opt::flag("no-http3", "serve https without HTTP/3"),
    Opt::flag("hsts", "tell browsers to use https only, for a year"),
    Opt::flag("staging", "use Let's Encrypt's server for tests, whose certificates no browser trusts"),
    Opt::one("email", "ADDR", "your address, for Let's Encrypt"),
    Opt::many(
        "backend",
        "URL",
        "the web server to cache: http://localhost:3000, https://app.example, app.example:8080, or unix:/path/socket; several get the requests one after the other",
    ),
    Opt::one("vcl", "FILE", "read backends and caching rules from a VCL file instead of --backend"),
    Opt::one(
        "storage",
        "SPEC",
        "memory for the cache, such as 512M or 4G, or an argument of varnishd -s; default 256M",
    ),
    Opt::one(
        "name",
        "DIR",
        "working directory, for varnishlog -n and similar tools; the default depends on the port",
    ),
    Opt::one(
        "admin",
        "ADDR",
        "address for lacquer param, ban, purge and others with --address: 6082 (of this machine) or 10.0.0.1:6082; default: none",
    ),
    Opt::one(
        "secret",
        "FILE",
        "the secret of that address; default one that is written to the working directory",
    ),
    Opt::one(
        "web",
        "ADDR",
        "address of the dashboard, metrics and REST: 6083 (of this machine), 10.0.0.1:6083,token=FILE,cert=FILE or /path/socket; default: none",
    ),
    Opt::one(
        "otlp",
        "URL",
        "send metrics, and the spans of 1 % of the requests, to this collector of OpenTelemetry, such as http://localhost:4318; -p trace_rate=N sets another part; default: none",
    ),
    Opt::one(
        "config",
        "FILE",
        "read options from this file; default lacquer.toml in the current folder, if it exists. Those of the command line have precedence",
    ),
];

/// The number of options.
const COUNT: usize = BASIC.len() + rules::OPTIONS.len();

/// All options, in the order of the help.
pub const ALL: [Opt; COUNT] = {
    let mut all = [const { Opt::flag("", "") }; COUNT];
    let mut at = 0;
    while at < COUNT {
        all[at] = if at < BASIC.len() { BASIC[at] } else { rules::OPTIONS[at - BASIC.len()] };
        at += 1;
    }
    all
};
