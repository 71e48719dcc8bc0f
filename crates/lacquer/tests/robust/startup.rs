//! The time from the start of the program to the first response.

use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};
use lacquer_testing::slots::whole_slot;

/// The time for an unoptimized build on an idle machine. The minimum of several tries is compared with it.
const WITHIN: Duration = Duration::from_millis(500);
/// The time for all tries, of which a busy machine needs more.
const PATIENCE: Duration = Duration::from_mins(2);

#[test]
fn the_first_response_is_sent_within_half_a_second() {
    let _slot = whole_slot();
    let origin = Origin::start(sized);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < PATIENCE {
        let started = Instant::now();
        let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M"]);
        let response = get(daemon.address, "/100/kept/a").expect("the daemon responds");
        assert_eq!(response.status, 200);
        times.push(started.elapsed());
        if times.iter().min().is_some_and(|least| *least < WITHIN) {
            return;
        }
    }
    panic!("none of {times:?} is within {WITHIN:?}");
}
