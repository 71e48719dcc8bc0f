//! `lacquer run --https`: localhost with a certificate that a client verifies, redirections, and wrong options.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use lacquer_testing::origin::Origin;

use crate::client::{exchange, exchange_over_tls, verified_page};
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

/// Returns the value of Alt-Svc over TLS, whether the UDP port is in use, and what the command has printed.
fn http3(folder: &Path, ports: &Ports) -> (Option<String>, bool, String) {
    let response = exchange_over_tls(ports.tls, "localhost", "/");
    let announced = response.lines().find_map(|line| line.strip_prefix("Alt-Svc: ")).map(str::to_owned);
    let is_used = UdpSocket::bind(("127.0.0.1", ports.tls)).is_err();
    (announced, is_used, fs::read_to_string(folder.join("out")).unwrap())
}

#[test]
fn http3_is_served_beside_https_unless_it_is_switched_off_or_its_port_is_in_use() {
    let origin = Origin::start(respond);
    let backend = origin.address.to_string();
    let (scratch, ports) = (Scratch::new("http3"), Ports::choose());
    let options = ["--backend", &backend];

    let running = start(&scratch.0, &ports, &options);
    let (announced, is_used, text) = http3(&scratch.0, &ports);
    assert_eq!(announced, Some(format!("h3=\":{}\"; ma=86400", ports.tls)));
    assert!(is_used && text.contains(&format!("HTTP/3 on UDP port {}", ports.tls)), "{text}");
    drop(running);

    fs::write(scratch.0.join("off.toml"), "no-http3 = true\n").unwrap();
    let file = scratch.0.join("off.toml").display().to_string();
    for off in [&["--no-http3"][..], &["--config", &file]] {
        let running = start(&scratch.0, &ports, &[&options, off].concat());
        let (announced, is_used, text) = http3(&scratch.0, &ports);
        assert!(announced.is_none() && !is_used && !text.contains("HTTP/3"), "{off:?} {text}");
        drop(running);
    }

    let _other = UdpSocket::bind(("127.0.0.1", ports.tls)).unwrap();
    let _running = start(&scratch.0, &ports, &options);
    let (announced, _, text) = http3(&scratch.0, &ports);
    let line = format!("lacquer: https is served without HTTP/3: cannot listen on UDP port {}: ", ports.tls);
    assert!(announced.is_none() && text.matches("HTTP/3").count() == 1 && text.contains(&line), "{text}");
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
        (&["--no-http3"], "--no-http3 needs --https"),
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
