//! `lacquer run --https`, and certificates by ACME from Let's Encrypt's test server pebble, which refuses half of all nonces. `scripts/pebble`
//! builds it. Without the variable `PEBBLE`, the latter are skipped.

mod client;
mod local;
mod on_demand;
mod pebble;
mod site;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::Duration;

use client::{handshake, page, page_over_tls};
use pebble::Pebble;
use site::{Ports, Site};

/// Returns the programs, unless they are missing.
macro_rules! pebble_or_skip {
    ($ports:expr, $validity:expr) => {
        pebble_or_skip!(&[], $ports, $validity)
    };
    ($customers:expr, $ports:expr, $validity:expr) => {
        match Pebble::start($customers, $ports, $validity) {
            Some(pebble) => pebble,
            None => return eprintln!("skipped: set PEBBLE=$(scripts/pebble)"),
        }
    };
}

const DAYS: u64 = 90 * 86_400;

#[test]
fn a_certificate_by_http_survives_restarts() {
    let ports = Ports::choose();
    let mut pebble = pebble_or_skip!(&ports, DAYS);
    let mut site = Site::start(&pebble, &ports, "a.example;www.a.example", &["-p", "acme_challenge=http-01"]);
    site.await_certificates(1);
    let first = handshake(ports.tls, "www.a.example").expect("a certificate");
    assert_eq!(page_over_tls(ports.tls, "a.example", "/x").0, 200);
    assert!(handshake(ports.tls, "b.example").is_err());
    // Tokens that are not pending are requests like all others.
    assert_eq!(page(ports.http, "/.well-known/acme-challenge/abc"), (200, "from the origin".to_owned()));
    assert!(site.daemon().ok("tls.cert.list").contains("acme:a.example-"));
    assert!(site.daemon().ok("acme.list -j").contains("\"names\": [\"a.example\", \"www.a.example\"]"));
    assert_eq!(site.daemon().cli("param.set acme_dns_hook /bin/sh").0, 107);
    let files = site.files();
    assert!(files.iter().any(|path| path.ends_with("account.json")), "{files:?}");
    for path in &files {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
    }
    // The worker gets certificates, and never the account.
    let status = fs::read_to_string(format!("/proc/{}/status", site.daemon().worker())).unwrap();
    if lacquer_testing::daemon::is_root() {
        assert!(
            !status.contains("Uid:\t0") && files.iter().all(|path| fs::metadata(path).unwrap().uid() == 0),
            "{files:?}"
        );
    }
    let account = files.iter().find(|path| path.ends_with("account.json")).unwrap();
    let before = fs::read(account).unwrap();
    pebble.stop();
    site.restart();
    assert_eq!(handshake(ports.tls, "a.example"), Ok(first));
    assert_eq!(fs::read(account).unwrap(), before);
    assert!(!site.daemon().ok("acme.list").contains("cannot connect"));
}

#[test]
fn a_certificate_by_a_handshake() {
    let ports = Ports::choose();
    let pebble = pebble_or_skip!(&ports, DAYS);
    let names = "a.example;www.a.example,acme=b.example";
    let mut site = Site::start(&pebble, &ports, names, &["-p", "acme_challenge=tls-alpn-01"]);
    site.await_certificates(2);
    let of_b = handshake(ports.tls, "b.example");
    assert!(handshake(ports.tls, "a.example").is_ok() && of_b.is_ok());
    assert_ne!(handshake(ports.tls, "a.example"), of_b);
}

#[test]
fn a_wildcard_by_the_operators_program() {
    let ports = Ports::choose();
    let pebble = pebble_or_skip!(&ports, DAYS);
    let hook = pebble.hook();
    let mut site =
        Site::start(&pebble, &ports, "*.a.example;a.example", &["-p", &format!("acme_dns_hook={hook}")]);
    site.await_certificates(1);
    assert!(handshake(ports.tls, "any.a.example").is_ok());
    let calls = pebble.calls();
    assert!(calls.iter().any(|call| call.starts_with("add _acme-challenge.a.example ")), "{calls:?}");
    if lacquer_testing::daemon::is_root() {
        assert!(calls.iter().all(|call| !call.ends_with(" 0") && !call.contains(" 0 ")), "{calls:?}");
    }
    let count = |action: &str| calls.iter().filter(|call| call.starts_with(action)).count();
    assert!(count("add ") >= 1 && count("add ") == count("remove "), "{calls:?}");
}

#[test]
fn renewals_do_not_interrupt_connections() {
    let ports = Ports::choose();
    let pebble = pebble_or_skip!(&ports, 15);
    let mut site = Site::start(&pebble, &ports, "a.example", &["-p", "acme_challenge=http-01"]);
    site.await_certificates(1);
    let first = handshake(ports.tls, "a.example").expect("a certificate");
    site.daemon().ok("param.set timeout_idle 100");
    let mut kept = client::Kept::open(ports.tls, "a.example");
    assert!(
        pebble::until(Duration::from_mins(1), || {
            handshake(ports.tls, "a.example").is_ok_and(|next| next != first)
        }),
        "{}",
        site.daemon().stderr()
    );
    assert_eq!(kept.get("/again"), 200);
}

#[test]
fn damaged_files_are_replaced() {
    let ports = Ports::choose();
    let pebble = pebble_or_skip!(&ports, DAYS);
    let mut site = Site::start(&pebble, &ports, "a.example", &["-p", "acme_challenge=http-01"]);
    site.await_certificates(1);
    let first = handshake(ports.tls, "a.example").expect("a certificate");
    for path in site.files() {
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    site.restart();
    assert_eq!(page(ports.http, "/x").0, 200);
    site.await_certificates(1);
    assert_ne!(handshake(ports.tls, "a.example").expect("a certificate"), first);
    assert!(site.files().iter().any(|path| path.ends_with("account.json.bad")), "{:?}", site.files());
}

/// A key of 32 bytes in base64url, and another one.
const KEYS: [&str; 2] =
    ["zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9w4", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"];

#[test]
fn a_certificate_for_customers_of_the_authority() {
    let ports = Ports::choose();
    let pebble = pebble_or_skip!(&[("customer-1", KEYS[0])], &ports, DAYS);
    let file = std::env::temp_dir().join(format!("lacquer-external-{}-{}", std::process::id(), ports.tls));
    let option = format!("acme_external_account={}", file.display());
    let mut site = Site::start(&pebble, &ports, "a.example", &["-p", "acme_challenge=http-01"]);
    let limit = Duration::from_mins(1);
    let fails = |site: &mut Site, why: &str| {
        let found = pebble::until(limit, || site.daemon().ok("acme.list").contains(why));
        assert!(found, "{}", site.daemon().ok("acme.list"));
    };
    fails(&mut site, "in acme_external_account");
    drop(site);
    for (key, is_right) in [(KEYS[1], false), (KEYS[0], true)] {
        fs::write(&file, format!("customer-1\n{key}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let options = ["-p", "acme_challenge=http-01", "-p", &option];
        let mut site = Site::start(&pebble, &ports, "a.example", &options);
        if is_right {
            site.await_certificates(1);
        } else {
            fails(&mut site, "new account: ");
        }
        assert!(!site.daemon().ok("param.show acme_external_account").contains(key));
        assert!(!site.daemon().stderr().contains(key));
    }
    fs::remove_file(&file).unwrap();
}
