//! The helper threads: one expires objects, one tests bans, one updates counters, one watches the reactors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lacquer_cache::bans::LurkerParams;
use lacquer_cache::{CacheStats, Hooks};
use lacquer_engine::emulated::thread_gauges;
use lacquer_params::DebugBits;
use lacquer_shm::{Main, Tag, Vxid};
use lacquer_sources::clock;
use parking_lot::{Condvar, Mutex};

use crate::backend_gauges;
use crate::memory_trimmer::MemoryTrimmer;
use crate::process::Process;

/// The seconds between two updates of the gauges.
const PUBLISH_EVERY: f64 = 0.1;
/// Rounds of publishing after which the gauges of backends are set: once a second.
const GAUGES_EVERY: u32 = 10;
/// The number of bytes of the log's ring whose memory is released in each update. A released page costs the next
/// writer about a microsecond, so this takes at most a quarter of a percent of one core, whatever the log rate.
const RELEASE_AT_ONCE: usize = 1 << 20;
/// The number of objects that are removed before the locks are released and the log is written.
const EXPIRE_AT_ONCE: usize = 100;
/// The seconds for which the ban lurker works at a time.
const LURK_AT_ONCE: f64 = 0.002;
/// The seconds that it pauses then, to leave the core to reactors.
const LURK_PAUSE: f64 = 0.0002;
/// The longest sleep in seconds. It bounds the effect of a clock that jumps.
const LONGEST_SLEEP: f64 = 60.0;

static EXPIRY: WakeSignal = WakeSignal::new();
static LURKER: WakeSignal = WakeSignal::new();

/// Wakes one thread from its sleep. A notification before the sleep is remembered.
struct WakeSignal {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl WakeSignal {
    const fn new() -> WakeSignal {
        WakeSignal { pending: Mutex::new(false), changed: Condvar::new() }
    }

    fn notify(&self) {
        *self.pending.lock() = true;
        self.changed.notify_one();
    }

    fn sleep(&self, seconds: f64) {
        let mut pending = self.pending.lock();
        if !*pending && seconds > 0.0 {
            self.changed.wait_for(&mut pending, clock::seconds(seconds.min(LONGEST_SLEEP)));
        }
        *pending = false;
    }
}

/// Returns the hooks by which the cache wakes helpers.
pub fn hooks() -> Hooks {
    Hooks { expiry: Some(Box::new(|| EXPIRY.notify())), lurker: Some(Box::new(|| LURKER.notify())) }
}

/// Wakes the ban lurker.
pub fn kick_lurker() {
    LURKER.notify();
}

/// Wakes the helpers that depend on parameters.
pub fn params_changed() {
    LURKER.notify();
}

pub fn start(process: &Arc<Process>) -> Result<(), String> {
    publish(process, clock::real());
    let helpers: [(&str, fn(&Process)); 4] = [
        ("cache-exp", expire),
        ("ban-lurker", lurk),
        ("counters", publish_periodically),
        ("watchdog", crate::watchdog::watch),
    ];
    for (name, work) in helpers {
        let process = process.clone();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                lacquer_system::prepare_thread();
                work(&process);
            })
            .map_err(|e| format!("cannot start the thread {name}: {e}"))?;
    }
    Ok(())
}

fn expire(process: &Process) {
    loop {
        let next = expire_some(process);
        EXPIRY.sleep(next - clock::real());
    }
}

/// Removes some of the expired objects. Returns the time of the next removal.
pub fn expire_some(process: &Process) -> f64 {
    let mut log = |text: fmt::Arguments<'_>| process.shared().log().write_fmt(Tag::ExpKill, Vxid::NONE, text);
    process.shared().cache().expire(clock::real(), EXPIRE_AT_ONCE, &mut log)
}

fn lurk(process: &Process) {
    loop {
        let mut awake = clock::monotonic();
        let mut pace = |seconds: f64| {
            let pause = if clock::monotonic() - awake > LURK_AT_ONCE { LURK_PAUSE } else { 0.0 };
            if seconds.max(pause) > 0.0 {
                std::thread::sleep(clock::seconds(seconds.max(pause)));
                awake = clock::monotonic();
            }
        };
        let sleep = lurk_once(process, &mut pace);
        LURKER.sleep(sleep);
    }
}

/// Tests objects against bans. `pace` is called with the least number of seconds to pause. Returns the seconds until
/// the next round.
pub fn lurk_once(process: &Process, pace: &mut dyn FnMut(f64)) -> f64 {
    let params = process.shared().params();
    let wanted = LurkerParams {
        sleep: params.ban_lurker_sleep,
        age: params.ban_lurker_age,
        batch: params.ban_lurker_batch,
        cutoff: params.ban_cutoff,
    };
    let mut log = |text: &str| process.shared().log().write(Tag::ExpBan, Vxid::NONE, text.as_bytes());
    let sleep = process.shared().cache().lurk(clock::real(), wanted, pace, &mut log);
    if params.debug.has(DebugBits::LURKER) {
        let text = format_args!("lurker: sleep = {sleep:.6}");
        process.shared().log().write_fmt(Tag::Debug, Vxid::NONE, text);
    }
    sleep
}

fn publish_periodically(process: &Process) {
    let started = clock::real();
    let mut trimmer = MemoryTrimmer::new(process);
    for round in (0..GAUGES_EVERY).cycle() {
        publish(process, started);
        // There may be very many backends.
        if round == 0 {
            backend_gauges::publish(process);
        }
        trimmer.trim_if_due(process);
        process.shared().log().release(RELEASE_AT_ONCE);
        std::thread::sleep(clock::seconds(PUBLISH_EVERY));
    }
}

/// Copies the counts of other components into the published counters, and applies parameters that the cache caches.
pub fn publish(process: &Process, started: f64) {
    let main: &Main = process.shared().counters();
    main.uptime.set((clock::real() - started).max(0.0) as u64);
    publish_counts(process);
    let params = process.shared().params();
    thread_gauges::publish(main, &params);
    main.n_waiting.set(process.shared().admission().waiting());
    main.thread_queue_len.set(process.shared().admission().queued());
    process.shared().cache().set_trace(!process.shared().log().is_masked(Tag::ExpKill));
    process.shared().cache().set_rush_exponent(params.rush_exponent);
    process.shared().cache().set_lru_interval(params.lru_interval);
}

/// Copies the counts of other components into the published counters.
pub fn publish_counts(process: &Process) {
    publish_cache(process.shared().counters(), process.shared().cache().stats());
    process.shared().stevedores().publish();
    process.publish_counters();
}

fn publish_cache(to: &Main, from: &CacheStats) {
    macro_rules! copy {
        ($($name:ident)*) => {
            $(to.$name.set(from.$name.load(Ordering::Relaxed));)*
        };
    }
    copy!(n_object n_objectcore n_objecthead n_expired n_superseded);
    copy!(n_lru_nuked n_lru_moved n_lru_limited);
    copy!(n_purges n_obj_purged exp_mailed exp_received busy_sleep busy_wakeup);
    copy!(bans bans_completed bans_obj bans_req bans_added bans_deleted bans_tested bans_obj_killed);
    copy!(bans_lurker_tested bans_tests_tested bans_lurker_tests_tested bans_lurker_obj_killed);
    copy!(bans_lurker_obj_killed_cutoff bans_dups bans_lurker_contention);
    copy!(bans_persisted_bytes bans_persisted_fragmentation);
}
