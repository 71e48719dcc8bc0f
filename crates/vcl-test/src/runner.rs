//! Distributes the tests of files to threads. Each thread has an engine of its own.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions};

use crate::folder;
use crate::format::{Suite, parse};
use crate::judge::Mismatch;
use crate::panics;
use crate::program::{Compiled, compile};
use crate::run;
use crate::world::{World, params_of};

/// The least number of tests for which a further engine is worth its start.
const LEAST_TESTS: usize = 25;
/// The time between two checks whether a test has exceeded its time.
const ROUND: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub struct Settings {
    /// Only tests whose name contains this text run.
    pub filter: Option<String>,
    /// Parameters of the engine.
    pub params: Vec<(String, String)>,
    /// The real time that a test may take.
    pub limit: Duration,
}

/// The result of one test.
#[derive(Debug)]
pub struct TestResult {
    pub name: String,
    pub line: u32,
    pub failures: Vec<Mismatch>,
}

/// The results of a test file.
#[derive(Debug)]
pub struct File {
    pub name: String,
    pub tests: Vec<TestResult>,
}

#[derive(Debug)]
pub struct Results {
    pub files: Vec<File>,
    /// The number of requests of clients.
    pub requests: usize,
    /// The real time in seconds.
    pub seconds: f64,
    /// A test exceeded its time, and others may not have run.
    pub is_stuck: bool,
}

impl Results {
    /// Returns the number of tests, and of those that failed.
    pub fn counts(&self) -> (usize, usize) {
        let tests = || self.files.iter().flat_map(|file| &file.tests);
        (tests().count(), tests().filter(|test| !test.failures.is_empty()).count())
    }
}

/// Some tests of one file.
struct Batch {
    file: usize,
    text: Arc<Vec<u8>>,
    tests: Vec<usize>,
}

enum Event {
    Begun {
        worker: usize,
        file: usize,
        test: usize,
    },
    Ended {
        worker: usize,
        file: usize,
        test: usize,
        outcome: run::Outcome,
    },
    /// The worker has no more tests.
    Done {
        worker: usize,
        failure: Option<String>,
    },
}

/// Runs the tests of files, given by name and contents, against a VCL. The error is a text for a terminal.
pub fn check(vcl: &str, files: &[(String, Vec<u8>)], settings: &Settings) -> Result<Results, String> {
    let begun = Instant::now();
    folder::remove_leftovers();
    let compiled = Arc::new(compile(vcl, &params_of(&settings.params)?)?);
    let mut tables = Vec::new();
    let mut batches = VecDeque::new();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for (file, (name, text)) in files.iter().enumerate() {
        let suite = parse(text).map_err(|fault| format!("{name}:{}: {}", fault.line, fault.what))?;
        let wanted = |name: &str| settings.filter.as_ref().is_none_or(|text| name.contains(text));
        let chosen: Vec<usize> = (0..suite.tests.len()).filter(|at| wanted(&suite.tests[*at].name)).collect();
        let parts = (chosen.len() / LEAST_TESTS).clamp(1, cores);
        let text = Arc::new(text.clone());
        for part in chosen.chunks(chosen.len().div_ceil(parts).max(1)) {
            batches.push_back(Batch { file, text: text.clone(), tests: part.to_vec() });
        }
        tables.push(suite.tests.into_iter().map(|test| (test.name, test.line)).collect::<Vec<_>>());
    }
    let collected = collect(&compiled, batches, cores, settings)?;
    let mut outcomes = collected.outcomes;
    let mut results = Results { files: Vec::new(), requests: 0, seconds: 0.0, is_stuck: collected.is_stuck };
    for (file, table) in tables.into_iter().enumerate() {
        let mut tests = Vec::new();
        for (at, (name, line)) in table.into_iter().enumerate() {
            let Some(outcome) = outcomes.remove(&(file, at)) else { continue };
            results.requests += outcome.requests;
            tests.push(TestResult { name, line, failures: outcome.failures });
        }
        results.files.push(File { name: files[file].0.clone(), tests });
    }
    results.seconds = begun.elapsed().as_secs_f64();
    Ok(results)
}

#[derive(Default)]
struct Collected {
    outcomes: BTreeMap<(usize, usize), run::Outcome>,
    is_stuck: bool,
}

/// Runs the batches. If a test exceeds its time, its thread cannot be stopped: the results so far are returned, and the
/// caller should end the process.
fn collect(
    compiled: &Arc<Compiled>,
    batches: VecDeque<Batch>,
    cores: usize,
    settings: &Settings,
) -> Result<Collected, String> {
    let workers = batches.len().min(cores);
    let queue = Arc::new(Mutex::new(batches));
    let (sender, events) = mpsc::channel();
    for worker in 0..workers {
        let (queue, compiled, sender) = (queue.clone(), compiled.clone(), sender.clone());
        let params = settings.params.clone();
        thread::Builder::new()
            .name(format!("tests-{worker}"))
            .stack_size(8 << 20)
            .spawn(move || {
                let ended =
                    catch_unwind(AssertUnwindSafe(|| work(worker, &queue, &compiled, &params, &sender)));
                let failure = ended.map_or_else(|_| Some(panics::take().join("\n")), Result::err);
                let _ = sender.send(Event::Done { worker, failure });
            })
            .map_err(|error| format!("cannot start a thread: {error}"))?;
    }
    drop(sender);
    let mut collected = Collected::default();
    let mut running: BTreeMap<usize, (usize, usize, Instant)> = BTreeMap::new();
    let mut left = workers;
    while left > 0 {
        match events.recv_timeout(ROUND) {
            Ok(Event::Begun { worker, file, test }) => {
                running.insert(worker, (file, test, Instant::now()));
            }
            Ok(Event::Ended { worker, file, test, outcome }) => {
                running.remove(&worker);
                collected.outcomes.insert((file, test), outcome);
            }
            Ok(Event::Done { worker, failure }) => {
                left -= 1;
                running.remove(&worker);
                if let Some(why) = failure {
                    return Err(why);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let late = running.values().find(|(_, _, begun)| begun.elapsed() > settings.limit);
        if let Some((file, test, _)) = late {
            let why = format!("the test does not end within {} s of real time", settings.limit.as_secs_f64());
            let failures = vec![Mismatch::fault(0, why)];
            collected.outcomes.insert((*file, *test), run::Outcome { failures, requests: 0 });
            collected.is_stuck = true;
            folder::remove_own();
            return Ok(collected);
        }
    }
    Ok(collected)
}

fn work(
    worker: usize,
    queue: &Mutex<VecDeque<Batch>>,
    compiled: &Arc<Compiled>,
    params: &[(String, String)],
    sender: &Sender<Event>,
) -> Result<(), String> {
    panics::collect();
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(batch) = next else { return Ok(()) };
        // The rules of a suite stay on their thread.
        let suite = parse(&batch.text).map_err(|fault| format!("line {}: {}", fault.line, fault.what))?;
        run_batch(&batch, &suite, compiled, params, &mut |event| {
            let event = match event {
                (test, None) => Event::Begun { worker, file: batch.file, test },
                (test, Some(outcome)) => Event::Ended { worker, file: batch.file, test, outcome },
            };
            // The receiver has ended because another test is stuck.
            let _ = sender.send(event);
        })?;
    }
}

fn run_batch(
    batch: &Batch,
    suite: &Suite,
    compiled: &Arc<Compiled>,
    params: &[(String, String)],
    tell: &mut dyn FnMut((usize, Option<run::Outcome>)),
) -> Result<(), String> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build_local(LocalOptions::default())
        .map_err(|error| format!("cannot create an event loop: {error}"))?;
    let result = runtime.block_on(async {
        let mut world = World::begin(compiled.clone(), params)?;
        for &test in &batch.tests {
            tell((test, None));
            let outcome = run::run(&mut world, suite, &suite.tests[test]).await;
            tell((test, Some(outcome)));
        }
        Ok(())
    });
    // All tasks end here, in whatever state.
    drop(runtime);
    result
}
