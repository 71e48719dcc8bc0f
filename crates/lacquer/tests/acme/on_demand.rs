//! Certificates on demand: names of the list get one when a client first asks, and no other names cause an order.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lacquer_testing::daemon::refused;

use crate::client::{handshake, page_over_tls};
use crate::pebble::{Pebble, until};
use crate::site::{Ports, Site};

const DAYS: u64 = 90 * 86_400;
const LIMIT: Duration = Duration::from_secs(90);

/// A list of names.
struct List(PathBuf);

impl List {
    fn new(ports: &Ports, text: &str) -> List {
        let path = std::env::temp_dir().join(format!("lacquer-names-{}-{}", std::process::id(), ports.tls));
        let list = List(path);
        list.write(text);
        list
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).expect("a file");
    }

    fn option(&self) -> String {
        format!("acme_on_demand={}", self.0.display())
    }
}

impl Drop for List {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Asks for a name until it has a certificate, which it returns.
fn obtained(ports: &Ports, name: &str) -> Vec<u8> {
    let mut last = Err("no handshake".to_owned());
    assert!(
        until(LIMIT, || {
            last = handshake(ports.tls, name);
            last.is_ok()
        }),
        "{name}: {last:?}"
    );
    last.expect("a certificate")
}

/// Returns the number of names in `acme.list`.
fn count(site: &mut Site) -> usize {
    site.daemon().ok("acme.list").lines().count()
}

#[test]
fn listed_names_get_certificates_when_they_are_asked_for() {
    let ports = Ports::choose();
    let Some(mut pebble) = Pebble::start(&[], &ports, DAYS) else {
        return eprintln!("skipped: set PEBBLE=$(scripts/pebble)");
    };
    let list = List::new(&ports, "# Shops\nshop.example\n*.users.example\n");
    let mut site = Site::on_demand(&pebble, &ports, &["-p", &list.option()]);
    assert_eq!(site.daemon().ok("acme.list"), "");
    for name in ["evil.example", "users.example", "a.b.users.example", "localhost"] {
        assert!(handshake(ports.tls, name).is_err(), "{name}");
    }
    let shop = obtained(&ports, "shop.example");
    assert_ne!(obtained(&ports, "Ann.users.example"), shop);
    assert_eq!(page_over_tls(ports.tls, "shop.example", "/x").0, 200);
    let shown = site.daemon().ok("acme.list");
    assert_eq!((count(&mut site), shown.contains("shop.example")), (2, true), "{shown}");
    assert!(handshake(ports.tls, "evil.example").is_err());

    // The list is read again.
    assert!(handshake(ports.tls, "new.example").is_err());
    list.write("shop.example\nnew.example\n*\n");
    let (status, text) = site.daemon().cli("tls.cert.reload");
    assert!(status != 200 && text.contains("acme_on_demand") && text.contains("line 3"), "{status} {text}");
    list.write("shop.example\nnew.example\n");
    site.daemon().ok("tls.cert.reload");
    obtained(&ports, "new.example");
    assert!(handshake(ports.tls, "bob.users.example").is_err());

    // It is also read again without a command.
    list.write("shop.example\n*\n");
    assert!(until(LIMIT, || site.daemon().stderr().contains("the old list stays in use")));
    list.write("shop.example\nnew.example\nlater.example\n");
    obtained(&ports, "later.example");

    // Certificates survive, as far as the list contains their names.
    pebble.stop();
    site.restart();
    assert_eq!(handshake(ports.tls, "shop.example"), Ok(shop));
    assert!(handshake(ports.tls, "ann.users.example").is_err());
    assert!(until(LIMIT, || count(&mut site) == 3), "{}", site.daemon().ok("acme.list"));
}

/// Names of a wildcard that an attacker makes up cannot cause orders without end.
#[test]
fn a_flood_of_names_causes_few_orders() {
    let ports = Ports::choose();
    let Some(mut pebble) = Pebble::start(&[], &ports, DAYS) else {
        return eprintln!("skipped: set PEBBLE=$(scripts/pebble)");
    };
    let list = List::new(&ports, "*.users.example\n");
    let mut site = Site::on_demand(&pebble, &ports, &["-p", &list.option()]);
    // Each order fails.
    pebble.stop();
    let clients: Vec<_> = (0..80)
        .map(|n| {
            let port = ports.tls;
            std::thread::spawn(move || handshake(port, &format!("n{n}.users.example")).is_err())
        })
        .collect();
    assert!(clients.into_iter().all(|client| client.join().expect("it ends")));
    assert!(
        until(LIMIT, || site.daemon().stderr().contains("20 names on demand wait")),
        "{}",
        site.daemon().stderr()
    );
    assert_eq!(count(&mut site), 20);
    assert!(!site.daemon().stderr().contains("worker died"), "{}", site.daemon().stderr());
}

#[test]
fn lists_that_cannot_be_used_are_refused() {
    for (script, option, why) in [
        ("exec \"$@\"", "acme_on_demand=/nonexistent", "No such file"),
        ("exec \"$@\"", "acme_on_demand=/", "directory"),
        ("exec \"$@\"", "acme_on_demand=/dev/null", "Not a regular file"),
        ("echo '*' > $dir/names; exec \"$@\" -p acme_on_demand=$dir/names", "acme_contact=", "line 1"),
        (
            "echo > $dir/names; exec \"$@\" -p acme_on_demand=$dir/names",
            "acme_contact=",
            "it contains no name",
        ),
    ] {
        let text = refused(&["-a", "127.0.0.1:0,https", "-p", option], script);
        assert!(text.contains("acme_on_demand") && text.contains(why), "{option}: {text}");
    }
    let text = refused(&["-p", "acme_on_demand=/etc/hostname"], "exec \"$@\"");
    assert!(text.contains("acme_on_demand needs a listener with https"), "{text}");
}
