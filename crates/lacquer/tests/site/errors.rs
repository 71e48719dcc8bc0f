//! Error pages of `lacquer run`: plain, with a number, safe, and different for browsers and programs.

use std::fs;
use std::time::Duration;

use lacquer_testing::client::Response;
use lacquer_testing::daemon::signal;
use lacquer_testing::{Folder, free_address, until};

use crate::{Site, Text as _, lacquer};

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

/// Checks what all error pages have in common.
fn is_plain(page: &Response) {
    let text = page.text();
    assert!(!text.contains("Guru") && !text.contains("Varnish"), "{text}");
    assert_eq!((page.header("Cache-Control"), page.header("Server")), (Some("no-store"), None));
    let id = page.header("X-Request-Id").expect("it has a number");
    assert!(text.contains(&format!("Request {id}")), "{text}");
}

#[test]
fn a_dead_server_leads_to_a_plain_page_with_a_number() {
    let backend = format!("http://{}", free_address());
    let site = Site::start(&["--backend", &backend, "--purge-from", "10.0.0.0/8"], &[]);
    let page = site.ask("GET", "/", BROWSER);
    assert_eq!((page.status, page.header("Retry-After")), (503, Some("5")));
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    is_plain(&page);
    let text = page.text();
    assert!(
        text.contains("color-scheme\" content=\"light dark\"") && text.contains("<h1>This page cannot"),
        "{text}"
    );
    assert!(text.contains("<p>Error 503: Backend fetch failed</p>"), "{text}");
    let number = page.header("X-Request-Id").expect("it has one");
    assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{number}");

    let page = site.ask("GET", "/", "Accept: application/json\r\n");
    assert_eq!(page.header("Content-Type"), Some("text/plain; charset=utf-8"));
    is_plain(&page);
    assert!(page.text().starts_with("Error 503 Backend fetch failed\n"), "{}", page.text());

    // A load balancer has named the request; a client cannot name it as it likes.
    let page = site.ask("GET", "/", &format!("{BROWSER}X-Request-Id: 7f3a-1\r\n"));
    assert!(page.text().contains("Request 7f3a-1<"), "{}", page.text());
    let page = site.ask("GET", "/", &format!("{BROWSER}X-Request-Id: <script>alert(1)</script>\r\n"));
    is_plain(&page);
    assert!(!page.text().contains("<script"), "{}", page.text());

    // Pages that VCL makes without a fetch: the reply to a purge is text, others are pages.
    let page = site.ask("PURGE", "/", BROWSER);
    assert_eq!((page.status, page.text().as_str()), (403, "This address may not purge\n"));
    let page = site.ask("GET", "/", &format!("{BROWSER}Cache-Control: only-if-cached\r\n"));
    assert!(
        page.status == 504 && page.text().contains("<h1>Error 504: Gateway Timeout</h1>"),
        "{}",
        page.text()
    );
    is_plain(&page);
}

/// Nothing is left in the directory of runs, neither after a start that failed nor after the end.
#[test]
fn a_run_removes_its_directory_and_its_vcl() {
    let _turn = crate::turn();
    let folder = Folder::new("leftovers");
    let runs = folder.join("runs");
    fs::create_dir(&runs).expect("a directory");
    let number = || fs::read_dir(&runs).expect("it exists").count();
    let backend = format!("http://{}", free_address());
    let start = |more: &[&str]| {
        let listen = free_address().to_string();
        let words = [&["run", "--listen", &listen, "--backend", &backend][..], more].concat();
        let out = fs::File::create(folder.join("out")).expect("a file");
        let mut command = crate::command(&folder, &words);
        let err = fs::File::create(folder.join("err")).expect("a file");
        command.env("XDG_RUNTIME_DIR", &runs).stdout(out).stderr(err);
        command.spawn().expect("it starts")
    };
    // The daemon finds it, after it has made most of its files.
    let wrong = format!("{},token=/nonexistent/token", free_address());
    let code = start(&["--log", "text", "--web", &wrong]).wait().expect("it ends").code();
    assert_eq!((code, number()), (Some(2), 0));
    // The companion has ended as it should.
    std::thread::sleep(Duration::from_millis(500));
    assert!(!folder.read("err").contains("is started again"), "{}", folder.read("err"));
    let named = runs.join("named").display().to_string();
    let code = start(&["--name", &named, "--web", &wrong]).wait().expect("it ends").code();
    assert_eq!((code, number()), (Some(2), 0), "{}", folder.read("err"));
    let mut run = start(&[]);
    let is_up = until(|| folder.read("out").contains("Lacquer is serving"));
    let during = number();
    signal(run.id(), "-TERM");
    let code = run.wait().expect("it ends").code();
    assert!(is_up && during == 2, "{during}");
    assert_eq!((code, number()), (Some(0), 0));
}

/// A second run with the name of one that serves is refused, and the first one continues.
#[test]
fn a_name_in_use_is_described() {
    let site = Site::start(&[], &[]);
    let name = site.folder.join("instance").display().to_string();
    let listen = free_address().to_string();
    let (code, out, err) = lacquer(&site.folder, &["run", "--listen", &listen, "--name", &name]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    let begins = format!("lacquer: a daemon runs with --name {name} already: process ");
    let shown = err.replace("\n         ", " ");
    assert!(shown.starts_with(&begins) && shown.contains(&format!("serving {}", site.address)), "{err}");
    assert!(shown.contains("choose another --name, or end it with `kill "), "{err}");
    assert_eq!(site.ask("GET", "/", "").status, 200);
}
