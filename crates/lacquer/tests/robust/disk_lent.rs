//! `-s disk` with less memory than objects: responses may be sent from the memory of their read.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;

use lacquer_testing::Random;
use lacquer_testing::client::Client;

use crate::disk::{Pages, Place, ask, body, connect, store_all, version};

/// The number of pages, which are longer than the memory.
const PAGES: u64 = 1200;

/// Starts a daemon whose disk contains all pages.
fn filled(pages: &Pages, place: &Place) -> lacquer_testing::daemon::Daemon {
    let daemon = pages.daemon(&place.option(",size=256m,memory=16m"));
    let mut client = connect(&daemon);
    store_all(&daemon, &mut client, 0..PAGES);
    daemon
}

/// Requests random pages in all ways, and checks every byte.
fn browse(client: &mut Client, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..300 {
        let n = random.number() % PAGES;
        let (path, expected) = (format!("/{n}"), body(n, 1, ""));
        match random.number() % 4 {
            0 if !expected.is_empty() => {
                let from = random.number() as usize % expected.len();
                let to = (from + random.number() as usize % 40_000).min(expected.len() - 1);
                let part = ask(client, "GET", &path, &format!("Range: bytes={from}-{to}\r\n"));
                assert!(part.status == 206 && part.body == expected[from..=to], "{n}: {from} to {to}");
            }
            1 => {
                let head = ask(client, "HEAD", &path, "");
                assert_eq!(head.header("Content-Length"), Some(&*expected.len().to_string()));
            }
            _ => assert_eq!(version(client, n), 1),
        }
    }
}

#[test]
fn pages_are_right_when_few_of_them_fit_in_memory() {
    let (pages, place) = (Pages::start(), Place::new("lent"));
    let daemon = filled(&pages, &place);
    let before = pages.requests();
    thread::scope(|scope| {
        for seed in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || browse(&mut connect(daemon), seed));
        }
    });
    // A few long pages may find no room in so little memory while others are sent.
    let fetched = pages.requests() - before;
    assert!(fetched < 25, "{fetched} of 2400 requests are misses, although the disk has all pages");
    let mut client = connect(&daemon);
    // A purge reaches pages that are only on the disk.
    pages.version.store(2, Ordering::SeqCst);
    for n in 0..PAGES {
        assert_eq!(ask(&mut client, "PURGE", &format!("/{n}"), "").status, 200);
    }
    assert!((0..PAGES).all(|n| version(&mut client, n) == 2));
}

#[test]
fn clients_that_do_not_read_delay_no_others() {
    let (pages, place) = (Pages::start(), Place::new("unread"));
    let daemon = filled(&pages, &place);
    let before = pages.requests();
    // More responses than reads whose memory may be in use.
    let long: Vec<u64> = (0..PAGES).filter(|&n| (50_000..270_000).contains(&body(n, 1, "").len())).collect();
    let mut stuck: Vec<(u64, TcpStream)> = Vec::new();
    for &n in &long {
        let mut stream = TcpStream::connect(daemon.address).expect("it accepts");
        write!(stream, "GET /{n} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
        stuck.push((n, stream));
    }
    assert!(stuck.len() > 50, "{}", stuck.len());
    let mut client = connect(&daemon);
    browse(&mut client, 100);
    for (n, mut stream) in stuck {
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("it is complete");
        assert!(response.ends_with(&body(n, 1, "")), "{n}");
    }
    assert_eq!(pages.requests(), before, "{}", daemon.stderr());
}
