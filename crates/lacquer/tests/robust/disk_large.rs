//! Objects on disks that are longer than a segment.

use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lacquer_testing::Random;
use lacquer_testing::client::Client;

use crate::disk::{Pages, Place, ask, body, connect, kill_all, kill_now, read_all, version, write_to_disk};

/// Pages of 900 kB. A segment of the smallest store has 256 kB.
const LARGE: [u64; 3] = [0, 50, 100];
/// The usual number of kills.
const ROUNDS: usize = 8;
/// The longest time in which an object must survive a kill.
const LONGEST_WAIT: Duration = Duration::from_mins(3);
const SIZE: &str = ",size=16m,memory=32m";

fn read_large(client: &mut Client) -> Vec<usize> {
    LARGE.iter().map(|&n| version(client, n)).collect()
}

#[test]
fn large_objects_survive_the_end_of_all_processes() {
    let (pages, place) = (Pages::start(), Place::new("large"));
    let option = place.option(SIZE);
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    read_large(&mut client);
    read_all(&mut client, 1..40);
    kill_all(daemon);
    pages.version.store(2, Ordering::SeqCst);
    let before = pages.requests();
    let daemon = pages.daemon(&option);
    let mut client = connect(&daemon);
    // Ranges and heads first: they need few bytes of the body.
    let whole = body(50, 1, "");
    let head = ask(&mut client, "HEAD", "/50", "");
    assert_eq!(head.header("Content-Length"), Some(&*whole.len().to_string()));
    for (from, to) in [(0, 0), (65_500, 65_510), (700_000, 700_099), (100_000, 899_000)] {
        let part = ask(&mut client, "GET", "/50", &format!("Range: bytes={from}-{to}\r\n"));
        assert_eq!(part.status, 206);
        assert!(part.body == whole[from..=to], "{from}-{to}: {} bytes", part.body.len());
    }
    assert_eq!(read_large(&mut client), [1; 3]);
    assert_eq!(pages.requests(), before);
    // Several clients at once.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(read_large(&mut connect(&daemon)), [1; 3]));
        }
    });
    assert_eq!(ask(&mut client, "PURGE", "/50", "").status, 200);
    ask(&mut client, "GET", "/100", "refresh: 1\r\n");
    kill_all(daemon);
    pages.version.store(3, Ordering::SeqCst);
    let daemon = pages.daemon(&option);
    assert_eq!(read_large(&mut connect(&daemon)), [1, 3, 2]);
}

#[test]
fn a_kill_while_large_objects_are_written_leaves_no_wrong_byte() {
    let (pages, place) = (Pages::start(), Place::new("large-kill"));
    let option = place.option(SIZE);
    let (mut random, mut kept) = (Random(11), 0);
    let started = Instant::now();
    let mut round = 0;
    // On a slow disk, no object may be complete so soon: there are more and longer rounds then.
    while round < ROUNDS || kept == 0 && started.elapsed() < LONGEST_WAIT {
        round += 1;
        pages.version.store(round, Ordering::SeqCst);
        let daemon = pages.daemon(&option);
        let mut client = connect(&daemon);
        // The bodies are compared with those of their versions.
        kept += read_large(&mut client).into_iter().filter(|&version| version < round).count();
        for n in LARGE {
            ask(&mut client, "GET", &format!("/{n}"), "refresh: 1\r\n");
            let first = 1 + random.below(39);
            read_all(&mut client, first..first + 10);
        }
        thread::sleep(Duration::from_millis(random.below(1500 * (1 + (round / (ROUNDS + 1)) as u64))));
        kill_now(daemon);
    }
    assert!(kept > 0, "no object has survived");
}

#[test]
fn a_damaged_part_ends_its_response() {
    let (pages, place) = (Pages::start(), Place::new("large-damage"));
    let option = place.option(SIZE);
    let daemon = pages.daemon(&option);
    read_large(&mut connect(&daemon));
    // This writes the summary of the last segment, so that its records are not read at the next start.
    daemon.end_in_order();
    let mut bytes = fs::read(place.store()).expect("there is a store");
    for at in (300_000..bytes.len()).step_by(400_000) {
        bytes[at] ^= 4;
    }
    write_to_disk(&place.store(), &bytes);
    let before = pages.requests();
    let daemon = pages.daemon(&option);
    let mut cut = 0;
    for n in LARGE {
        let mut client = connect(&daemon);
        match client.ask(&format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n")) {
            Ok(response) => assert!(response.body == body(n, 1, ""), "wrong bytes of {n}"),
            Err(_) => cut += 1,
        }
    }
    assert!(cut > 0, "no response was cut off");
    assert_eq!(read_large(&mut connect(&daemon)), [1; 3]);
    assert_eq!(pages.requests() - before, cut, "damaged objects are fetched again");
}
