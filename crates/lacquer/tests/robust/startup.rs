//! From the start of the program to the first answer.

use std::time::{Duration, Instant};

use lacquer_testing::client::get;
use lacquer_testing::daemon::{Daemon, vcl};
use lacquer_testing::origin::{Origin, sized};

/// The time that an unoptimised build takes on a machine at rest; the least of some tries is compared.
const WITHIN: Duration = Duration::from_millis(500);
const TRIES: usize = 10;

#[test]
fn the_first_answer_comes_soon() {
    let origin = Origin::start(sized);
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let started = Instant::now();
        let daemon = Daemon::start(&vcl(origin.address, ""), &["-s", "malloc,32M"]);
        let answer = get(daemon.address, "/100/kept/a").expect("it answers");
        assert_eq!(answer.status, 200);
        times.push(started.elapsed());
        if times.iter().min().is_some_and(|least| *least < WITHIN) {
            return;
        }
    }
    panic!("none of {times:?} is within {WITHIN:?}");
}
