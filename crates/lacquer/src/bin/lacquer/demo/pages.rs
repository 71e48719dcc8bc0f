//! The pages of the demonstration site. Each shows one behavior of a cache. The index page is generated from
//! the table of pages.

use super::message::{Request, Response};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const INDEX: &str = include_str!("index.html");
const HTML: &str = "text/html; charset=utf-8";

/// Number of requests to this server. The pages contain it, which shows whether a response came from the cache.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

struct Page {
    path: &'static str,
    link: &'static str,
    what: &'static str,
    make: fn(&Request) -> Response,
}

const PAGES: &[Page] = &[
    Page {
        path: "/time",
        link: "/time",
        what: "The server’s clock, cacheable for ten seconds. Reload: the time does not change, the Age grows.",
        make: |_| page("The time", &clock()).header("Cache-Control", "max-age=10"),
    },
    Page {
        path: "/slow",
        link: "/slow?ms=1500",
        what: "Takes a second and a half to generate. The second visitor gets it at once.",
        make: slow,
    },
    Page {
        path: "/revalidate",
        link: "/revalidate",
        what: "Fresh for two seconds, then revalidated with its ETag: the server replies 304 Not Modified.",
        make: revalidate,
    },
    Page {
        path: "/vary",
        link: "/vary",
        what: "In German or English, as the browser prefers: one URL, one cached copy for each language.",
        make: vary,
    },
    Page {
        path: "/image.svg",
        link: "/image.svg",
        what: "A picture that may be cached for a day.",
        make: |_| {
            Response::new("200 OK", "image/svg+xml", IMAGE).header("Cache-Control", "public, max-age=86400")
        },
    },
    Page { path: "/big", link: "/big?bytes=10000000", what: "A response of any size.", make: big },
    Page {
        path: "/cookie",
        link: "/cookie",
        what: "Sets a cookie, so it is meant for one visitor and is not cached.",
        make: |_| {
            page("A cookie", "This response sets a cookie.")
                .header("Set-Cookie", "visitor=1")
                .header("Cache-Control", "max-age=60")
        },
    },
    Page {
        path: "/private",
        link: "/private",
        what: "Has “Cache-Control: private”: every request reaches the web server.",
        make: |_| page("Private", &clock()).header("Cache-Control", "private"),
    },
    Page {
        path: "/error",
        link: "/error",
        what: "The server fails. Errors are not cached.",
        make: |_| {
            Response::new(
                "500 Internal Server Error",
                HTML,
                document("An error", "The server failed, as you asked."),
            )
        },
    },
];

const IMAGE: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 240 120"><defs><linearGradient id="g" x2="1" y2="1"><stop stop-color="#8c1c13"/><stop offset="1" stop-color="#e07a3f"/></linearGradient></defs><rect width="240" height="120" rx="14" fill="url(#g)"/><path d="M20 88c40-60 70 20 110-30s60-20 90-34" fill="none" stroke="#fff" stroke-opacity=".75" stroke-width="5" stroke-linecap="round"/></svg>
"##;

pub fn respond(request: &Request) -> Response {
    REQUESTS.fetch_add(1, Ordering::Relaxed);
    if request.path == "/" {
        return Response::new("200 OK", HTML, index()).header("Cache-Control", "max-age=60");
    }
    match PAGES.iter().find(|p| p.path == request.path) {
        Some(page) => (page.make)(request),
        None => Response::new("404 Not Found", HTML, document("Not found", "There is no such page.")),
    }
}

fn index() -> String {
    let mut rows = String::new();
    for p in PAGES {
        let _ = writeln!(
            rows,
            "<li data-path=\"{0}\"><a href=\"{0}\"><code>{0}</code></a><p>{1}</p><output></output></li>",
            p.link, p.what
        );
    }
    INDEX.replace("<!--pages-->", &rows)
}

fn slow(request: &Request) -> Response {
    let ms = request.number("ms", 1000, 30_000);
    thread::sleep(Duration::from_millis(ms));
    page("Slow", &format!("This page took {ms} ms to generate.")).header("Cache-Control", "max-age=30")
}

fn revalidate(request: &Request) -> Response {
    const TAG: &str = "\"edition-1\"";
    let known = request.header("if-none-match").is_some_and(|tags| tags.contains(TAG));
    let response =
        if known { Response::not_modified() } else { page("Revalidated", "This page has an ETag.") };
    response.header("ETag", TAG).header("Cache-Control", "max-age=2")
}

fn vary(request: &Request) -> Response {
    let german = request.header("accept-language").is_some_and(|l| l.starts_with("de"));
    let text = if german { "Guten Tag!" } else { "Good day!" };
    page(text, "One URL, one cached copy for each language.")
        .header("Vary", "Accept-Language")
        .header("Cache-Control", "max-age=60")
}

fn big(request: &Request) -> Response {
    let bytes = request.number("bytes", 1_000_000, 1_000_000_000) as usize;
    let line = b"Lacquer caches the responses of your web server and serves them fast. ";
    let body = line.iter().copied().cycle().take(bytes).collect::<Vec<u8>>();
    Response::new("200 OK", "text/plain", body).header("Cache-Control", "max-age=3600")
}

fn page(title: &str, text: &str) -> Response {
    Response::new("200 OK", HTML, document(title, text))
}

fn document(title: &str, text: &str) -> String {
    let requests = REQUESTS.load(Ordering::Relaxed);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <style>body{{font:18px/1.6 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em;color:#2b2622}}\
         h1{{color:#8c1c13}}a{{color:#8c1c13}}small{{color:#887}}</style>\
         <h1>{title}</h1><p>{text}<p><small>This was request {requests} that reached the web server.</small>\
         <p><a href=\"/\">All pages</a></html>\n"
    )
}

fn clock() -> String {
    let s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    format!("The server’s clock says {:02}:{:02}:{:02} UTC.", s / 3600 % 24, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(target: &str, header: &str) -> (String, String) {
        let text = format!("GET {target} HTTP/1.1\r\n{header}\r\n");
        let request = Request::read(&mut text.as_bytes()).expect("readable").expect("complete");
        let response = respond(&request);
        (response.head(true), String::from_utf8_lossy(&response.body).into_owned())
    }

    #[test]
    fn every_page_of_the_index_exists() {
        let (head, body) = get("/", "");
        assert!(head.contains("max-age=60"));
        for p in PAGES {
            assert!(body.contains(p.link), "{}", p.link);
            let fast = if p.path == "/slow" { "/slow?ms=1" } else { p.link };
            assert!(!get(fast, "").0.contains(" 404 "), "{}", p.link);
        }
        assert!(get("/nowhere", "").0.contains(" 404 "));
    }

    #[test]
    fn pages_behave_as_described() {
        assert!(get("/revalidate", "If-None-Match: \"edition-1\"\r\n").0.starts_with("HTTP/1.1 304"));
        assert!(get("/vary", "Accept-Language: de\r\n").1.contains("Guten Tag"));
        assert_eq!(get("/big?bytes=12345", "").1.len(), 12345);
    }
}
