//! The rules of a site where they meet each other, unusual names, and headers of web servers.

use std::time::{Duration, Instant};

use crate::{App, Site, Text as _};

const MINUTE: &str = "Content-Type: text/html\r\nCache-Control: max-age=60\r\n";

#[test]
fn a_purge_finds_the_page_whatever_the_case_of_the_host() {
    let app = App::start(MINUTE);
    let site = Site::start(&["--backend", &app.url(), "--purge-from", "127.0.0.0/8"], &[]);
    for path in ["/a", "/*"] {
        let before = site.get("/a");
        assert_eq!(site.get("/a"), before);
        assert_eq!(site.ask_host("A.Example", "PURGE", path, "").status, 200);
        assert_ne!(site.get("/a"), before, "{path}");
    }
}

#[test]
fn tags_may_stand_in_several_headers() {
    let app = App::start(
        "Content-Type: text/html\r\nCache-Control: max-age=60\r\nCache-Tag: news\r\nCache-Tag: sport,home\r\n",
    );
    let options = ["--backend", &app.url(), "--purge-from", "127.0.0.0/8", "--tags", "Cache-Tag"];
    let site = Site::start(&options, &[]);
    for tags in ["Cache-Tag: sport\r\n", "Cache-Tag: home\r\n", "Cache-Tag: other\r\nCache-Tag: news\r\n"] {
        let before = site.get("/a");
        assert_eq!(site.get("/a"), before);
        assert_eq!(site.ask("PURGE", "/", tags).text(), "Purged by tag: 1\n", "{tags}");
        assert_ne!(site.get("/a"), before, "{tags}");
    }
    let shown = site.ask("GET", "/a", "");
    assert_eq!((shown.header("Cache-Tag"), shown.header("xkey")), (None, None));
}

#[test]
fn rules_by_type_obey_the_field_for_caches() {
    let app =
        App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\nCDN-Cache-Control: private\r\n");
    let options = [
        "--backend",
        &app.url(),
        "--cache",
        "type:text/html=60s",
        "--cache",
        "status:404=60s",
        "--stale",
        "1h",
    ];
    let site = Site::start(&options, &[]);
    assert_ne!(site.get("/a"), site.get("/a"));
    assert_ne!(site.get("/none"), site.get("/none"));
}

#[test]
fn errors_are_not_served_after_their_end() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: max-age=1\r\n");
    for more in [&[][..], &["--cache", "status:404=1s"]] {
        let site = Site::start(&[&["--backend", &app.url(), "--stale", "1h"], more].concat(), &[]);
        // The first requests for a pair of pages must be answered before the pages end.
        let fresh = |number: usize| {
            let (begun, paths) = (Instant::now(), [format!("/a{number}"), format!("/none{number}")]);
            let first = paths.each_ref().map(|path| site.get(path));
            let second = paths.each_ref().map(|path| site.get(path));
            let in_time = begun.elapsed() < Duration::from_millis(900);
            assert!(!in_time || first == second, "{more:?}: {first:?} {second:?}");
            in_time.then_some((paths, first))
        };
        let ([kept, none], [page, error]) =
            (0..20).find_map(fresh).expect("four requests are answered in a second");
        std::thread::sleep(Duration::from_millis(1300));
        assert_eq!(site.get(&kept), page, "{more:?}");
        assert_ne!(site.get(&none), error, "{more:?}");
    }
}

#[test]
fn pages_that_are_never_cached_keep_their_cookies() {
    let app = App::start("Content-Type: text/html\r\nSet-Cookie: _ga=1\r\n");
    let options = ["--backend", &app.url(), "--ignore-cookies", "_ga*", "--cache", "/cart=0"];
    let site = Site::start(&[&options[..], &["--cache", "*=60s"]].concat(), &[]);
    assert_eq!(site.ask("GET", "/cart", "Cookie: _ga=1\r\n").header("Set-Cookie"), Some("_ga=1"));
    assert_eq!(site.ask("GET", "/a", "Cookie: _ga=1\r\n").header("Set-Cookie"), None);
    assert_eq!(site.get("/a"), site.get("/a"));
}

#[test]
fn patterns_match_letters_that_clients_encode() {
    let app = App::start(MINUTE);
    let options = ["--backend", &app.url(), "--except", "/käse", "--except", "/^\\/(brot|öl)$/", "--except"];
    let site = Site::start(&[&options[..], &["/two words"]].concat(), &[]);
    for path in ["/k%C3%A4se/1", "/k%c3%a4se", "/käse", "/%C3%B6l", "/brot", "/two%20words"] {
        assert_ne!(site.get(path), site.get(path), "{path}");
    }
    for path in ["/kse", "/k%C3%B6se", "/%C3%B6le"] {
        assert_eq!(site.get(path), site.get(path), "{path}");
    }
}
