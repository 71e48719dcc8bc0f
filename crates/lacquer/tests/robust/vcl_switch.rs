//! A thousand VCLs are loaded, used and discarded under traffic: every request succeeds and uses a single VCL, and
//! discarded VCLs are freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lacquer_testing::client::Client;
use lacquer_testing::daemon::{Daemon, until, vcl};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::shared_slot;

const ROUNDS: usize = 1000;
/// The number of VCLs after which caches and pools have reached their size.
const WARM: usize = 200;
/// Some 50 kB were measured; the rest is a margin for allocators.
const MAY_GROW: u64 = 2 << 20;

/// Returns subroutines that check that both belong to the same VCL, as does the string in them. Uncacheable responses
/// are passed: each one fetched as a miss would leave a hit-for-miss object for two minutes.
fn subs(number: usize) -> String {
    format!(
        "sub vcl_recv {{ set req.http.seen = \"{number}\"; if (req.url ~ \"/private/|/[a-z]*{number}$\") \
         {{ return (pass); }} }} sub vcl_deliver {{ set resp.http.seen = req.http.seen; \
         set resp.http.mine = \"{number}\"; }}"
    )
}

#[derive(Default)]
struct Seen {
    responses: AtomicUsize,
    ends: AtomicBool,
}

fn send_requests(address: std::net::SocketAddr, seen: &Seen) {
    let mut client = Client::connect(address).expect("connections are accepted");
    while !seen.ends.load(Ordering::Relaxed) {
        for path in ["/300/kept/a", "/300/private/b"] {
            let response = client.get(path).expect("every request gets a response");
            assert_eq!(response.status, 200);
            let (seen, mine) = (response.header("seen"), response.header("mine"));
            assert!(seen.is_some() && seen == mine, "{seen:?} in vcl_recv, {mine:?} in vcl_deliver");
        }
        seen.responses.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn vcls_are_replaced_under_traffic() {
    let _slot = shared_slot();
    let origin = Origin::start(sized);
    // A small ring, so that it is full before memory is compared.
    let options = ["-s", "malloc,32M", "-p", "vsl_space=1M"];
    let mut daemon = Daemon::start(&vcl(origin.address, &subs(0)), &options);
    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let (seen, address) = (seen.clone(), daemon.address);
            std::thread::spawn(move || send_requests(address, &seen))
        })
        .collect();
    let mut before = String::from("boot");
    let mut warm = 0;
    for number in 1..=ROUNDS {
        let name = format!("v{number}");
        let text = vcl(origin.address, &subs(number)).replace('\n', " ");
        daemon.ok(&format!("vcl.inline {name} << %%\n{text}\n%%"));
        daemon.ok(&format!("vcl.use {name}"));
        daemon.ok(&format!("vcl.discard {before}"));
        before = name;
        if number == WARM {
            warm = daemon.resident().memory;
        }
    }
    assert!(until(|| daemon.ok("vcl.list").lines().filter(|l| !l.trim().is_empty()).count() == 1));
    let after = daemon.resident().memory;
    seen.ends.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("no request fails");
    }
    assert!(seen.responses.load(Ordering::Relaxed) > 100);
    eprintln!("resident after {WARM} VCLs: {} kB, after {ROUNDS}: {} kB", warm >> 10, after >> 10);
    assert!(after < warm + MAY_GROW, "{warm} bytes became {after}");
}
