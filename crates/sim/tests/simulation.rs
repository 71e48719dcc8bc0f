//! Runs worlds of many seeds, for `SIMULATE_SECONDS`, from the seed `SIMULATE_FROM` on. `SIMULATE_SEED` runs one seed
//! alone.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use lacquer_sim::{Report, run};
use rustix::thread::{Pid, gettid};

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn live(seed: u64) -> Report {
    run(seed, variable("SIMULATE_SEED") == Some(seed)).expect("a world can be created")
}

/// The processor time that a stuck world has used. Most need some milliseconds. Real time would not do: other programs
/// can keep a world from running.
const MOST_WORK: Duration = Duration::from_mins(1);

/// The real time after which a world is stuck even if it uses no processor time.
const LONGEST: Duration = Duration::from_mins(15);

/// Returns the processor time that a thread of this process has used.
fn processor_time(thread: Pid) -> Duration {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_pid());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// Runs a world. Ends the process with the seed if the world does not end.
fn within_limit(seed: u64, world: impl FnOnce() -> Report) -> Report {
    let (ended, end) = mpsc::channel::<()>();
    let (runs_on, begun) = (gettid(), Instant::now());
    let used = processor_time(runs_on);
    let watch = thread::spawn(move || {
        while end.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            if processor_time(runs_on).saturating_sub(used) > MOST_WORK || begun.elapsed() > LONGEST {
                // The test harness would drop the output of `eprintln`, because the process ends here.
                let _ = writeln!(std::io::stderr(), "SIMULATE_SEED={seed}: the world is stuck");
                std::process::exit(1);
            }
        }
    });
    let report = world();
    drop(ended);
    watch.join().expect("it does not panic");
    report
}

/// The sums of many worlds.
#[derive(Default)]
struct Sums {
    worlds: u64,
    requests: u64,
    complete: u64,
    seconds: f64,
    failed: Option<Report>,
}

impl Sums {
    fn add(&mut self, report: Report) {
        self.worlds += 1;
        self.requests += report.requests;
        self.complete += report.complete;
        self.seconds += report.seconds;
        if !report.faults.is_empty() {
            self.failed.get_or_insert(report);
        }
    }
}

#[test]
fn every_world_keeps_the_rules() {
    let time = Duration::from_secs(variable("SIMULATE_SECONDS").unwrap_or(30));
    let alone = variable("SIMULATE_SEED");
    let (next, sums) =
        (AtomicU64::new(alone.or(variable("SIMULATE_FROM")).unwrap_or(0)), Mutex::new(Sums::default()));
    let begun = Instant::now();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let report = within_limit(seed, || live(seed));
            let mut sums = sums.lock().expect("no thread panics while it holds the lock");
            sums.add(report);
            if sums.failed.is_some() || alone.is_some() || begun.elapsed() > time {
                break;
            }
        }
    };
    let threads = if alone.is_some() { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let Sums { worlds, requests, complete, seconds, failed } =
        sums.into_inner().expect("no thread panics while it holds the lock");
    if let Some(Report { seed, faults, .. }) = failed {
        panic!("SIMULATE_SEED={seed}: {faults:#?}");
    }
    let rate = worlds as f64 / begun.elapsed().as_secs_f64();
    println!("{worlds} worlds, {rate:.0} a second, {seconds:.0} simulated seconds in total");
    println!("{requests} requests, {complete} complete responses");
}

#[test]
fn a_seed_repeats_its_world() {
    for seed in [1, 2, 3] {
        assert_eq!(live(seed), live(seed), "seed {seed}");
    }
}
