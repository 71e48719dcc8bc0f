//! `lacquer run --https`: localhost with a certificate that a client verifies, redirections, and wrong options.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lacquer_testing::origin::Origin;

use crate::client::{exchange, verified_page};
use crate::pebble::until;
use crate::site::{Ports, respond};

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("lacquer-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `lacquer run`.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        lacquer_testing::daemon::signal(self.0.id(), "-TERM");
        if !until(Duration::from_secs(20), || self.0.try_wait().is_ok_and(|end| end.is_some())) {
            let _ = self.0.kill();
        }
    }
}

fn command(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
    command.arg("run").args(options).env("XDG_CONFIG_HOME", folder).env("XDG_STATE_HOME", folder);
    command.stdin(Stdio::null());
    command
}

fn start(folder: &Path, ports: &Ports, options: &[&str]) -> Running {
    let out = fs::File::create(folder.join("out")).unwrap();
    let errors = out.try_clone().unwrap();
    let name = folder.join("instance").display().to_string();
    let (tls, http) = (format!("localhost:{}", ports.tls), format!("127.0.0.1:{}", ports.http));
    let places = ["--https", "localhost", "--https-listen", &tls, "--listen", &http, "--name", &name];
    let running = Running(
        command(folder, &[&places[..], options].concat()).stdout(out).stderr(errors).spawn().unwrap(),
    );
    let limit = Duration::from_mins(1);
    let is_open = || std::net::TcpStream::connect(("127.0.0.1", ports.tls)).is_ok();
    let is_up = until(limit, || {
        is_open() && fs::read_to_string(folder.join("out")).unwrap().contains("Lacquer is serving")
    });
    assert!(is_up, "{}", fs::read_to_string(folder.join("out")).unwrap());
    running
}

fn authority(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("lacquer/localhost/authority.pem")).unwrap()
}

/// Returns status and Location for a request without TLS.
fn redirection(ports: &Ports, head: &str) -> (u16, String) {
    let response = exchange(ports.http, &format!("{head}\r\nConnection: close\r\n\r\n"));
    let location = response.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default();
    (response.split(' ').nth(1).unwrap().parse().unwrap(), location.trim().to_owned())
}

#[test]
fn localhost_is_served_and_redirected() {
    let (scratch, ports) = (Scratch::new("https"), Ports::choose());
    let origin = Origin::start(respond);
    let backend = origin.address.to_string();
    let running = start(&scratch.0, &ports, &["--backend", &backend]);
    let first = authority(&scratch.0);
    for name in ["localhost", "127.0.0.1"] {
        let page = verified_page(ports.tls, name, &first);
        assert_eq!(page, Ok((200, "from the origin".to_owned())), "{name}");
    }
    assert!(verified_page(ports.tls, "other.example", &first).is_err());
    let own = format!("https://localhost:{}", ports.tls);
    for (head, location) in [
        ("GET /x?y=z HTTP/1.1\r\nHost: localhost", format!("{own}/x?y=z")),
        ("GET /x HTTP/1.1\r\nHost: 127.0.0.1:80", format!("https://127.0.0.1:{}/x", ports.tls)),
        ("GET /x HTTP/1.1\r\nHost: evil.example", format!("{own}/x")),
        ("GET /x HTTP/1.1\r\nHost: localhost.evil.example", format!("{own}/x")),
        ("GET //evil.example/x HTTP/1.1\r\nHost: localhost", format!("{own}//evil.example/x")),
        ("GET http://evil.example/x HTTP/1.1\r\nHost: localhost", format!("{own}/x")),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost", format!("{own}/")),
        ("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0", format!("{own}/x")),
        // Only pending tokens are answered.
        (
            "GET /.well-known/acme-challenge/t HTTP/1.1\r\nHost: x",
            format!("{own}/.well-known/acme-challenge/t"),
        ),
    ] {
        assert_eq!(redirection(&ports, head), (308, location), "{head}");
    }
    assert_eq!(redirection(&ports, "GET /x HTTP/1.1\r\nHost: localhost:80@evil.example").0, 400);
    // A target that would continue the name.
    let (status, location) = redirection(&ports, "GET .evil.example/ HTTP/1.1\r\nHost: localhost");
    assert!(status == 400 || location == format!("{own}/"), "{status} {location}");
    let text = fs::read_to_string(scratch.0.join("out")).unwrap();
    assert!(text.contains("To make this system trust it") && text.contains(&format!("{own}/")), "{text}");
    assert!(text.contains("--cacert"), "{text}");
    drop(running);
    // The authority stays, so that users trust it only once.
    let _running = start(&scratch.0, &ports, &["--backend", &backend]);
    assert_eq!(authority(&scratch.0), first);
    assert!(verified_page(ports.tls, "localhost", &first).is_ok());
}

#[test]
fn a_vcl_of_the_users_is_included() {
    let (scratch, ports) = (Scratch::new("https-vcl"), Ports::choose());
    let origin = Origin::start(respond);
    let own = scratch.0.join("own.vcl");
    let text = lacquer_testing::daemon::vcl(
        origin.address,
        "import tls;\nsub vcl_recv { if (req.url == \"/own\") { return (synth(200, req.http.X-Forwarded-Proto)); } }\n\
         sub vcl_synth { set resp.body = resp.reason; return (deliver); }",
    );
    fs::write(&own, text).unwrap();
    let _running = start(&scratch.0, &ports, &["--vcl", &own.display().to_string()]);
    let authority = authority(&scratch.0);
    assert_eq!(verified_page(ports.tls, "localhost", &authority).unwrap().0, 200);
    let body = crate::client::page_over_tls(ports.tls, "localhost", "/own");
    assert_eq!(body, (200, "https".to_owned()));
    assert_eq!(redirection(&ports, "GET /own HTTP/1.1\r\nHost: localhost").0, 308);
}

#[test]
fn wrong_options_say_what_to_do() {
    let scratch = Scratch::new("https-wrong");
    let output = |options: &[&str]| -> Output { command(&scratch.0, options).output().unwrap() };
    for (options, words) in [
        (&["--hsts"][..], "--hsts needs --https"),
        (&["--https", "localhost", "--hsts"], "--hsts cannot be used for localhost"),
        (&["--https", "localhost", "--https", "a.example"], "cannot be combined"),
        (&["--https", "localhost", "--staging"], "cannot be combined"),
        (&["--https", "*.a.example"], "acme_dns_hook"),
        (&["--https", "myhost"], "no public authority signs this name"),
        (&["--https", "192.0.2.1"], "an address is not supported"),
        (&["--https", "b\u{fc}cher.example"], "xn--"),
        (&["--https", "a.example", "--https-listen", "x"], "--https-listen x: `x` is not a port"),
    ] {
        let output = output(options);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(words), "{options:?}: {text}");
    }
}
