//! The tasks: a hit, cookies, exceptions, a broken origin, compression, purges, and several servers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use lacquer_testing::daemon::until;
use lacquer_testing::{Folder, free_address};
use serde_json::Value;

use crate::{App, Site, Text as _, command, lacquer, turn};

const HTML: &str = "Content-Type: text/html\r\n";

#[test]
fn cache_it_and_see_whether_it_is_a_hit() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: no-cache\r\n");
    let mut site = Site::start(&["--backend", &app.url(), "--cache", "*=60s", "--log", "json"], &[]);
    assert_eq!(site.get("/"), "page 1");
    // A browser's reload and its cookies do not matter.
    let hit = site.ask("GET", "/", "Cache-Control: no-cache\r\nCookie: a=b\r\n");
    assert_eq!(hit.text(), "page 1");
    assert!(hit.header("Cache-Status").is_some_and(|status| status.contains("hit")));
    assert_eq!(site.ask("POST", "/\"\\", "Content-Length: 0\r\n").text(), "page 2");
    assert_eq!(site.ask("GET", "/", "Authorization: Basic eA==\r\n").text(), "page 3");
    let log = |site: &Site| -> Vec<Value> {
        let lines = site.folder.read("out");
        lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    };
    assert!(until(|| log(&site).len() >= 4), "{}", site.folder.read("err"));
    // A line is written when its transaction ends, which is after the client has its response.
    let lines = log(&site);
    let count = |key: &str, value: &str| lines.iter().filter(|line| line[key] == value).count();
    assert_eq!((count("handling", "miss"), count("handling", "hit")), (1, 1), "{lines:?}");
    assert_eq!((count("method", "POST"), count("url", "/\"\\")), (1, 1), "{lines:?}");
    assert_eq!(site.get("/"), "page 1");
    // The summary is there when the daemon ends, and includes the last request. The lines of the log are complete too.
    site.end("-INT");
    let served = "Lacquer served 5 requests, 40 % from the cache; your web server sent 12 bytes less.";
    let err = site.folder.read("err");
    assert!(err.contains(served) && err.contains("Lacquer is serving"), "{err}");
    assert_eq!(log(&site).len(), 5);
}

#[test]
fn the_announced_command_explains_a_request_over_a_unix_socket() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\n");
    let socket = Folder::new("socket");
    let path = socket.join("listen").display().to_string();
    let site = Site::start(&["--backend", &app.url(), "--listen", &format!("{path},proxy")], &[]);
    let name = site.folder.join("instance").display().to_string();
    let why =
        |options: &[&str]| lacquer(&site.folder, &[&["why", "-n", &name, "--to", &path], options].concat());
    let (code, out, err) = why(&["--proxy-header", "http://localhost/"]);
    assert!(code == Some(0) && out.contains("MISS"), "{out} {err}");
    let (_, out, _) = why(&["--proxy-header", "/"]);
    assert!(out.contains("HIT"), "{out}");
}

#[test]
fn a_signal_to_all_processes_ends_a_run_quietly() {
    let app = App::start("Content-Type: text/html\r\n");
    for signal in ["-TERM", "-INT"] {
        let mut site = Site::start(&["--backend", &app.url(), "--log", "text"], &[]);
        site.get("/");
        let code = site.end_group(signal);
        let err = site.folder.read("err");
        assert_eq!(code, Some(0), "{signal}: {err}");
        assert!(err.contains("Lacquer served 1 request,"), "{signal}: {err}");
        assert!(!err.contains("Error"), "{signal}: {err}");
    }
}

/// Any user can put a file beside the directory of a run whose name is not given.
#[test]
fn a_pipe_in_place_of_the_written_vcl_is_named() {
    let _turn = turn();
    let folder = Folder::new("pipe");
    let address = free_address();
    let pipe = folder.join(format!("lacquer-{}.run.vcl", address.port()));
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|made| made.success()));
    let listen = address.to_string();
    let errors = folder.join("err");
    let mut run = command(&folder, &["run", "--listen", &listen, "--backend", "http://127.0.0.1:1"]);
    run.env("TMPDIR", &*folder).env_remove("XDG_RUNTIME_DIR");
    let errors = fs::File::create(errors).expect("it can be created");
    let mut run = run.stdout(Stdio::null()).stderr(errors).spawn().expect("it starts");
    let mut end = None;
    until(|| {
        end = run.try_wait().ok().flatten();
        end.is_some()
    });
    if end.is_none() {
        let _ = run.kill();
        let _ = run.wait();
    }
    let text = folder.read("err");
    assert_eq!(end.and_then(|end| end.code()), Some(2), "{text}");
    assert!(text.contains(&pipe.display().to_string()), "{text}");
}

#[test]
fn the_announced_commands_work() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\n");
    let site = Site::start(&["--backend", &app.url()], &[]);
    assert_eq!(site.get("/"), "page 1");
    let announcement = site.folder.read("out");
    let commands: Vec<Vec<&str>> = announcement
        .lines()
        .filter_map(|line| line.strip_prefix("  lacquer "))
        .map(|line| line.split(' ').map(|word| word.trim_matches('\'')).collect())
        .collect();
    assert_eq!(commands.iter().map(|words| words[0]).collect::<Vec<_>>(), ["why", "log", "ban"]);
    for words in &commands {
        // The expression of the ban has spaces.
        let (head, tail) = words.split_at(3);
        let last = tail.join(" ");
        let last = (!last.is_empty()).then_some(last.as_str());
        let (code, out, err) = lacquer(&site.folder, &[head, last.as_slice()].concat());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{words:?}: {out}");
    }
}

#[test]
fn ignore_cookies_of_analytics_and_keep_those_of_logins() {
    let app =
        App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\nSet-Cookie: _ga=1; Path=/\r\n");
    let site = Site::start(&["--backend", &app.url(), "--ignore-cookies", "_ga*,_gid"], &[]);
    assert_eq!(site.ask("GET", "/", "Cookie: _ga_X=1; _gid=2\r\n").text(), "page 1");
    let second = site.ask("GET", "/", "Cookie: _gid=3\r\n");
    assert_eq!((second.text().as_str(), second.header("Set-Cookie")), ("page 1", None));
    assert_eq!(site.ask("GET", "/", "Cookie: _gid=3; session=4\r\n").text(), "page 2");
    assert_eq!(site.ask("GET", "/", "Cookie: _gid=3\r\nCookie: session=4\r\n").text(), "page 3");
    let login = site.ask("POST", "/login", "Content-Length: 0\r\n");
    assert_eq!(login.header("Set-Cookie"), Some("_ga=1; Path=/"));
    drop(site);
    let all_but = Site::start(&["--backend", &app.url(), "--ignore-cookies=!session"], &[]);
    assert_eq!(all_but.ask("GET", "/", "Cookie: x=1\r\n").text(), "page 5");
    assert_eq!(all_but.get("/"), "page 5");
    assert_eq!(all_but.ask("GET", "/", "Cookie: x=1; session=1\r\n").text(), "page 6");
}

#[test]
fn exclude_the_administration() {
    let app = App::start("Content-Type: text/html\r\nSet-Cookie: id=1\r\n");
    let options = ["--backend", &app.url(), "--ignore-cookies", "--except", "/admin", "--cache", "*=60s"];
    let site = Site::start(&options, &[]);
    assert_eq!((site.get("/"), site.get("/")), ("page 1".to_owned(), "page 1".to_owned()));
    assert_eq!(site.ask("GET", "/", "").header("Set-Cookie"), None);
    for path in ["/admin", "/admin/users", "/admin?x"] {
        let (first, second) = (site.ask("GET", path, "Cookie: id=1\r\n"), site.ask("GET", path, ""));
        assert_ne!(first.text(), second.text(), "{path}");
        assert_eq!(first.header("Set-Cookie"), Some("id=1"), "{path}");
    }
    assert_eq!(site.get("/administrators"), site.get("/administrators"));
}

#[test]
fn a_proxy_names_its_clients() {
    let app = App::start("Content-Type: text/html\r\n");
    let place = Folder::new("site");
    let socket = place.join("socket");
    let listen = format!("{},proxy", socket.display());
    let url = app.url();
    let options =
        ["--backend", &url, "--cache", "*=60s", "--purge-from", "203.0.113.0/24", "--listen", &listen];
    let site = Site::start(&options, &[]);
    let purge = |first: &str| {
        let mut client = UnixStream::connect(&socket).expect("it listens");
        let request = format!("{first}PURGE / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        let _ = client.read_to_string(&mut response);
        response
    };
    assert_eq!((site.get("/"), site.get("/")), ("page 1".to_owned(), "page 1".to_owned()));
    let stranger = purge("PROXY TCP4 192.0.2.1 192.0.2.2 1 80\r\n");
    assert!(stranger.starts_with("HTTP/1.1 4"), "{stranger}");
    assert_eq!(purge(""), "", "the header is missing");
    assert_eq!(site.get("/"), "page 1");
    let editor = purge("PROXY TCP4 203.0.113.9 192.0.2.2 1 80\r\n");
    assert!(editor.starts_with("HTTP/1.1 200 "), "{editor}");
    assert_eq!(site.get("/"), "page 2");
    let (code, _, err) =
        lacquer(&site.folder, &["run", "--https", "localhost", "--https-listen", ":8443,proxy"]);
    assert!(code == Some(2) && err.contains("https has no PROXY headers"), "{err}");
}

#[test]
fn rules_by_type_and_status_respect_persons() {
    let app = App::start(HTML);
    let options = ["--backend", &app.url(), "--cache", "/live=0", "--cache", "type:text/html=60s", "--cache"];
    let site = Site::start(&[&options[..], &["status:404=60s"]].concat(), &[]);
    assert_eq!(site.get("/a"), site.get("/a"));
    assert_eq!(site.get("/none"), site.get("/none"));
    assert_ne!(site.get("/live"), site.get("/live"));
    let person = |n: &str| site.ask("GET", "/b", &format!("Cookie: session={n}\r\n")).text();
    assert_ne!(person("1"), person("2"));
    drop(site);
    let private = App::start("Content-Type: text/html\r\nCache-Control: private\r\n");
    let site = Site::start(&["--backend", &private.url(), "--cache", "type:text/html=60s"], &[]);
    assert_ne!(site.get("/a"), site.get("/a"));
}

#[test]
fn a_broken_origin_is_hidden_by_old_copies() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: max-age=1\r\n");
    let site = Site::start(&["--backend", &app.url(), "--stale", "1h"], &[]);
    assert_eq!(site.get("/"), "page 1");
    app.set_broken(true);
    std::thread::sleep(Duration::from_millis(1200));
    for _ in 0..5 {
        let response = site.ask("GET", "/", "Cache-Control: no-cache\r\n");
        assert_eq!((response.status, response.text().as_str()), (200, "page 1"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(until(|| app.origin.requests() > 1), "the origin is asked in the background");
    app.set_broken(false);
    assert!(until(|| site.get("/") != "page 1"));
}

#[test]
fn compress_texts() {
    let app = App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\n");
    let site = Site::start(&["--backend", &app.url(), "--compress"], &[]);
    let compressed = site.ask("GET", "/long", "Accept-Encoding: gzip\r\n");
    assert_eq!(compressed.header("Content-Encoding"), Some("gzip"));
    assert!(compressed.body.len() < 1000);
    assert_eq!(site.get("/long").len(), 10_000);
}

#[test]
fn purge_a_page_after_editing() {
    let app =
        App::start("Content-Type: text/html\r\nCache-Control: max-age=60\r\nCache-Tag: news, sport\r\n");
    let options = ["--backend", &app.url(), "--purge-from", "127.0.0.0/8", "--tags", "Cache-Tag"];
    let site = Site::start(&options, &[]);
    let all = || ["/a", "/news/1.html", "/news/2"].map(|path| site.get(path));
    let before = all();
    assert_eq!(all(), before);
    let purge = |path: &str, more: &str| {
        let response = site.ask("PURGE", path, more);
        (response.status, response.text())
    };
    assert_eq!(purge("/a", ""), (200, "Purged\n".to_owned()));
    let after = all();
    assert!(after[0] != before[0] && after[1..] == before[1..], "{after:?}");
    assert_eq!(purge("/news/*.html", ""), (200, "Purged all that match\n".to_owned()));
    let later = all();
    assert!(later[1] != after[1] && later[0] == after[0] && later[2] == after[2], "{later:?}");
    assert_eq!(purge("/", "Cache-Tag: sport\r\n"), (200, "Purged by tag: 3\n".to_owned()));
    assert!(all().iter().zip(&later).all(|(new, old)| new != old));
    assert_eq!(purge("/*\"&&obj.status==200", "").0, 400);
    assert_eq!(site.ask("GET", "/a", "").header("Cache-Tag"), None);
    drop(site);
    let closed = Site::start(&["--backend", &app.url(), "--purge-from", "10.0.0.0/8"], &[]);
    assert_eq!(closed.ask("PURGE", "/a", "").status, 403);
}

#[test]
fn several_servers_share_the_work() {
    let (first, second) =
        (App::start("Cache-Control: no-store\r\n"), App::start("Cache-Control: no-store\r\n"));
    let options = ["--backend", &first.url(), "--backend", &second.url(), "--log", "{method} {url} {status}"];
    let site = Site::start(&options, &[]);
    (0..10).for_each(|_| drop(site.get("/x")));
    assert_eq!((first.origin.requests(), second.origin.requests()), (5, 5));
    assert!(until(|| site.folder.read("out") == "GET /x 200\n".repeat(10)));
}

#[test]
fn the_printed_vcl_is_correct_and_formatted() {
    let folder = Folder::new("site");
    let rules = "--ignore-cookies _ga* --except /admin --cache *.jpg=1d --cache type:text/html=60s --stale 1h \
                 --compress --purge-from 127.0.0.1 --tags xkey --probe /health --backend a:1 --backend b:2";
    let words: Vec<&str> = ["run", "--print-vcl"].into_iter().chain(rules.split_whitespace()).collect();
    let (code, out, err) = lacquer(&folder, &words);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    fs::write(folder.join("site.vcl"), &out).expect("it can be written");
    let (code, checked, _) = lacquer(&folder, &["check", "--offline", "--deny", "warnings", "site.vcl"]);
    assert_eq!(code, Some(0), "{checked}\n{out}");
    let (code, listed, _) = lacquer(&folder, &["fmt", "--check", "site.vcl"]);
    assert_eq!(code, Some(0), "{listed}\n{out}");
}
