//! ACME servers that are down, slow, overloaded or lie: each attempt ends soon, with a reason and a time for the next.

mod server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lacquer_acme::{
    Client, Directory, Event, Folder, Inbox, MethodChoice, Names, Rights, Settings, State, Status,
};
use server::{Server, answer, directory, order};

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The result of the first attempt.
#[derive(Debug)]
struct Attempt {
    text: String,
    /// The time until the next attempt, in seconds.
    next: i64,
}

/// Returns a folder for the files of a client.
fn scratch() -> Scratch {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let scratch =
        Scratch(std::env::temp_dir().join(format!("lacquer-lying-{}-{number}", std::process::id())));
    std::fs::create_dir_all(&scratch.0).unwrap();
    scratch
}

/// Starts a client whose files are in this folder.
fn start(url: &str, trusted: &[u8], scratch: &Scratch) -> (Client, Inbox) {
    let settings = Settings {
        directory: Directory::parse(url).unwrap(),
        contacts: Vec::new(),
        external_account: None,
        methods: MethodChoice::parse("http-01").unwrap(),
        hook: None,
        trusted: trusted.to_vec(),
    };
    let folder = Folder::of(&scratch.0, &settings.directory);
    folder.create().unwrap();
    let names = Names::parse("a.example").unwrap();
    Client::start(settings, folder, vec![names], Vec::new(), Rights::unchanged()).unwrap()
}

/// Waits until the first certificate waits for its next attempt, which follows the report of the last one. Returns the time
/// of the attempt.
fn waiting(client: &Client) -> (i64, Status) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let status = client.statuses().remove(0);
        if let State::Waits(at) = status.state {
            return (at, status);
        }
        assert!(Instant::now() < deadline, "{status:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a client until its first attempt has failed, and returns the reason.
fn attempt_at(url: &str, trusted: &[u8]) -> Attempt {
    let scratch = scratch();
    let (client, mut inbox) = start(url, trusted, &scratch);
    let deadline = Instant::now() + Duration::from_mins(1);
    while Instant::now() < deadline {
        for event in inbox.take() {
            match event {
                Event::Report { text, is_error: true } => {
                    let (at, status) = waiting(&client);
                    let next = at - lacquer_sources::clock::real() as i64;
                    assert!(text.contains(&status.fault.unwrap()), "{text}");
                    return Attempt { text, next };
                }
                Event::Report { .. } => {}
                Event::Challenges { reply, .. } | Event::Certificate { reply, .. } => {
                    let _ = reply.send(Ok(()));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the attempt does not end");
}

fn attempt(respond: fn(&server::Request) -> Vec<u8>) -> Attempt {
    let server = Server::start(respond);
    attempt_at(&server.url(), server.authority())
}

fn fails(attempt: &Attempt, why: &str) {
    assert!(attempt.text.contains(why), "{attempt:?}");
    assert!(attempt.text.contains("a.example: ") && attempt.text.contains("; next attempt "), "{attempt:?}");
    assert!((50..90).contains(&attempt.next), "{attempt:?}");
}

#[test]
fn a_server_that_is_down() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    fails(&attempt_at(&format!("https://127.0.0.1:{port}/dir"), b""), "cannot connect: Connection refused");
}

#[test]
fn a_server_of_an_unknown_authority() {
    let server = Server::start(directory);
    fails(&attempt_at(&server.url(), b""), "name its authority in acme_ca_file");
}

#[test]
fn a_server_without_tls() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/dir", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::Write;
        for socket in listener.incoming().flatten() {
            let _ = (&socket).write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    fails(&attempt_at(&url, b""), "cannot send the request: ");
}

#[test]
fn a_directory_that_is_no_json() {
    fails(&attempt(|_| answer("200 OK", "text/html", "<html>Welcome</html>")), "not JSON of ACME");
    fails(&attempt(|_| answer("200 OK", "application/json", "{}")), "not JSON of ACME");
    fails(&attempt(|_| answer("200 OK", "application/json", &"[".repeat(100_000))), "not JSON of ACME");
}

#[test]
fn a_redirect_is_not_followed() {
    fails(
        &attempt(|_| {
            b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_vec()
        }),
        "the server redirects",
    );
}

#[test]
fn endless_and_truncated_responses() {
    fails(&attempt(|_| answer("200 OK", "application/json", &"x".repeat(5 << 20))), "too long");
    fails(&attempt(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}".to_vec()), "not complete");
    fails(&attempt(|_| b"HTTP/1.1 200 OK\r\n".to_vec()), "not complete");
    fails(&attempt(|_| b"garbage".repeat(10_000)), "too long");
}

#[test]
fn addresses_without_tls_are_refused() {
    fails(
        &attempt(|request| {
            let text = String::from_utf8(directory(request)).unwrap();
            let body = text.split_once("\r\n\r\n").unwrap().1.replace("https:", "http:");
            answer("200 OK", "application/json", &body)
        }),
        "does not begin with https://",
    );
}

#[test]
fn a_rate_limit_is_obeyed() {
    let attempt = attempt(|request| match request.path.as_str() {
        "/order" => {
            let body =
                r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates"}"#;
            let head = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7200\r\nReplay-Nonce: n\r\n";
            format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
        }
        _ => directory(request),
    });
    assert!(attempt.text.contains("too many certificates"), "{attempt:?}");
    assert!((7190..9100).contains(&attempt.next), "{attempt:?}");
}

#[test]
fn nonces_that_are_never_accepted() {
    let attempt = attempt(|request| match request.path.as_str() {
        "/order" => answer(
            "400 Bad Request",
            "application/problem+json",
            r#"{"type":"urn:ietf:params:acme:error:badNonce"}"#,
        ),
        _ => directory(request),
    });
    fails(&attempt, "badNonce");
}

#[test]
fn orders_for_other_names() {
    fails(
        &attempt(|request| order(request, "victim.example", "pending", "token")),
        "which is not in the order",
    );
}

#[test]
fn tokens_that_are_paths() {
    fails(&attempt(|request| order(request, "a.example", "pending", "../../etc")), "forbidden characters");
    fails(&attempt(|request| order(request, "a.example", "deactivated", "token")), "Deactivated");
}

/// Runs a client until its first attempt has failed. Returns all that it reports.
fn reports(respond: fn(&server::Request) -> Vec<u8>, scratch: &Scratch) -> Vec<String> {
    let server = Server::start(respond);
    let (_client, mut inbox) = start(&server.url(), server.authority(), scratch);
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut reports: Vec<String> = Vec::new();
    while !reports.last().is_some_and(|text| text.contains("; next attempt ")) {
        assert!(Instant::now() < deadline, "the attempt does not end: {reports:?}");
        for event in inbox.take() {
            if let Event::Report { text, .. } = event {
                reports.push(text);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    reports
}

/// Returns the names of the files with accounts.
fn accounts(scratch: &Scratch) -> Vec<String> {
    let folders = std::fs::read_dir(&scratch.0).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("account")).collect();
    names.sort_unstable();
    names
}

fn no_account() -> Vec<u8> {
    let problem = r#"{"type":"urn:ietf:params:acme:error:accountDoesNotExist","detail":"who is that"}"#;
    answer("400 Bad Request", "application/problem+json", problem)
}

/// A server that has lost its accounts gets a new one at once, and once in an attempt.
#[test]
fn an_account_that_the_server_has_forgotten_is_made_again() {
    static ORDERS: AtomicU32 = AtomicU32::new(0);
    let scratch = scratch();
    let count = |reports: &[String], what: &str| reports.iter().filter(|text| text.contains(what)).count();
    let found = reports(
        |request| match request.path.as_str() {
            "/order" if ORDERS.fetch_add(1, Ordering::Relaxed) == 0 => no_account(),
            _ => order(request, "victim.example", "pending", "token"),
        },
        &scratch,
    );
    assert_eq!((count(&found, "account created"), count(&found, "the server does not have")), (2, 1));
    assert!(found.last().unwrap().contains("which is not in the order"), "{found:?}");
    assert_eq!(accounts(&scratch), ["account.json", "account.json.bad"]);
    let found = reports(
        |request| if request.path == "/order" { no_account() } else { directory(request) },
        &self::scratch(),
    );
    assert_eq!((count(&found, "account created"), count(&found, "the server does not have")), (2, 1));
    assert!(found.last().unwrap().contains("who is that"), "{found:?}");
}

#[test]
fn texts_of_the_server_stay_in_one_line() {
    let attempt = attempt(|request| match request.path.as_str() {
        "/order" => answer(
            "403 Forbidden",
            "application/problem+json",
            r#"{"type":"urn:ietf:params:acme:error:unauthorized","detail":"a\nError: forged\u001b[2J"}"#,
        ),
        _ => directory(request),
    });
    fails(&attempt, "forged");
    assert!(!attempt.text.contains(['\n', '\u{1b}']), "{attempt:?}");
}
