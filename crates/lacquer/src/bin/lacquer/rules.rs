//! The caching rules among the options of `lacquer run`.

use lacquer_tools::site::{RULES, Site, Wrong};

use crate::args::{Opt, Values};
use crate::failure::Failure;

/// The options, in the order of the help.
pub const OPTIONS: [Opt; 12] = [
    Opt::one(
        "probe",
        "PATH",
        "fetch this page of each web server every 5 seconds; a server that fails gets no requests",
    ),
    Opt::optional(
        "ignore-cookies",
        "[NAMES]",
        "drop cookies from requests, so that pages are the same for all: every cookie, or those with these names, such as '_ga*,_gid,_fbp' for analytics; or all but those after !, such as '!wordpress_logged_in*,!wp-*,!comment_*' for WordPress: requests with them are not cached. The web server cannot set a dropped cookie on a page that may be cached; use --except for pages that log in",
    ),
    Opt::many(
        "except",
        "PATTERN",
        "never cache these URLs: /admin with all below it, '*.php' by ending, or a regular expression between slashes such as '/^\\/(cart|user)/'; may be repeated",
    ),
    Opt::many(
        "cache",
        "WHAT=TIME",
        "how long to cache, whatever the web server says: by URL ('*.jpg=1d', '/news=60s'), without cookies then; by media type ('type:text/html=60s') or status ('status:404=10s'), unless it says private or no-store; 0 is never. The first that matches counts",
    ),
    Opt::one(
        "stale",
        "TIME",
        "serve a copy for this time after its end while it is fetched again, and while the web server is down or answers with errors",
    ),
    Opt::flag("compress", "compress texts for browsers that accept it"),
    Opt::many(
        "purge-from",
        "NETWORK",
        "let these addresses purge: curl -X PURGE URL, or with * in the URL all that match; such as 127.0.0.1 or 10.0.0.0/8",
    ),
    Opt::one(
        "tags",
        "HEADER",
        "the response header with the tags of a page, such as xkey or Cache-Tag; curl -X PURGE -H 'HEADER: TAG' URL purges all pages with a tag",
    ),
    Opt::one(
        "log",
        "FORMAT",
        "write each request to standard output: json, json:time,url,status,req.user-agent (fields by name), text, combined, or a format such as '{time} {client} {method} {host}{url} {status} {handling} {bytes} {seconds}'",
    ),
    Opt::one(
        "log-to",
        "TARGET",
        "where --log goes instead: syslog, unix:/PATH (a stream socket) or tcp:HOST:PORT; what it does not read is dropped and counted",
    ),
    Opt::many("p", "NAME=VALUE", "set a parameter of the daemon; `lacquer param` lists them"),
    Opt::flag("print-vcl", "print the VCL that the options mean, to begin your own with, and end"),
];

/// Returns the site behind these backends, each as `lacquerd -b` accepts it.
pub fn site(values: &Values, backends: &[String]) -> Result<Site, Failure> {
    let mut site = Site::default();
    let failed =
        |what: String, wrong: Wrong| Failure::new(format_args!("{what}: {}", wrong.what)).hint(wrong.hint);
    for backend in backends {
        site.add_backend(backend).map_err(|wrong| failed(format!("--backend {backend}"), wrong))?;
    }
    for name in RULES {
        for value in values.many(name) {
            let blank = if value.is_empty() { "" } else { " " };
            site.set(name, value)
                .map_err(|wrong| failed(format!("--{name}{blank}{}", value.escape_debug()), wrong))?;
        }
    }
    site.check().map_err(|wrong| failed("the options".to_owned(), wrong))?;
    Ok(site)
}

/// Fails if there are rules beside a VCL file.
pub fn refuse_beside_vcl(values: &Values) -> Result<(), Failure> {
    match RULES.iter().find(|name| values.has(name)) {
        Some(name) => Err(Failure::new(format_args!("--{name} and --vcl cannot be combined"))
            .hint("a VCL file has its own rules; --print-vcl shows what options mean in VCL")),
        None => Ok(()),
    }
}
