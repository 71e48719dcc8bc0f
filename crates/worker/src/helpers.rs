//! The threads beside the reactors: one expires objects, one tests bans, one brings counters up to date,
//! one watches the reactors.

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

use crate::give_back::GiveBack;
use crate::process::Process;

/// Seconds between two updates of the gauges.
const PUBLISH_EVERY: f64 = 0.1;
/// Bytes of the log's ring that are freed in that time. A page costs the next writer about a microsecond, so
/// this takes at most a quarter of a per cent of one core, however much is logged.
const RELEASE_AT_ONCE: usize = 1 << 20;
/// Objects that are removed before the locks are released and the log is written.
const EXPIRE_AT_ONCE: usize = 100;
/// Seconds for which the ban lurker works at a time, and seconds of its pause, in which reactors have the core.
const LURK_AT_ONCE: f64 = 0.002;
const LURK_PAUSE: f64 = 0.0002;
/// Longest sleep, so that a clock that jumps is noticed.
const LONGEST_SLEEP: f64 = 60.0;

static EXPIRY: Bell = Bell::new();
static LURKER: Bell = Bell::new();

/// Wakes one thread from its sleep. A ring before the sleep is remembered.
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    const fn new() -> Bell {
        Bell { rung: Mutex::new(false), changed: Condvar::new() }
    }

    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    fn sleep(&self, seconds: f64) {
        let mut rung = self.rung.lock();
        if !*rung && seconds > 0.0 {
            self.changed.wait_for(&mut rung, clock::seconds(seconds.min(LONGEST_SLEEP)));
        }
        *rung = false;
    }
}

/// Returns the calls by which the cache wakes helpers.
pub fn hooks() -> Hooks {
    Hooks { expiry: Some(Box::new(|| EXPIRY.ring())), lurker: Some(Box::new(|| LURKER.ring())) }
}

/// Wakes the ban lurker.
pub fn kick_lurker() {
    LURKER.ring();
}

/// Wakes the helpers that depend on parameters.
pub fn params_changed() {
    LURKER.ring();
}

pub fn start(process: &Arc<Process>) -> Result<(), String> {
    publish(process, clock::real());
    let helpers: [(&str, fn(&Process)); 4] = [
        ("cache-exp", expire),
        ("ban-lurker", lurk),
        ("counters", publish_for_ever),
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

/// Removes some of the objects that are due. Returns the time of the next removal.
pub fn expire_some(process: &Process) -> f64 {
    let mut log = |text: fmt::Arguments<'_>| process.shared.log().write_fmt(Tag::ExpKill, Vxid::NONE, text);
    process.shared.cache().expire(clock::real(), EXPIRE_AT_ONCE, &mut log)
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

/// Tests objects against bans. `pace` may pause for so many seconds. Returns the seconds until the next round.
pub fn lurk_once(process: &Process, pace: &mut dyn FnMut(f64)) -> f64 {
    let params = process.shared.params();
    let wanted = LurkerParams {
        sleep: params.ban_lurker_sleep,
        age: params.ban_lurker_age,
        batch: params.ban_lurker_batch,
        cutoff: params.ban_cutoff,
    };
    let mut log = |text: &str| process.shared.log().write(Tag::ExpBan, Vxid::NONE, text.as_bytes());
    let sleep = process.shared.cache().lurk(clock::real(), wanted, pace, &mut log);
    if params.debug.has(DebugBits::LURKER) {
        let text = format_args!("lurker: sleep = {sleep:.6}");
        process.shared.log().write_fmt(Tag::Debug, Vxid::NONE, text);
    }
    sleep
}

fn publish_for_ever(process: &Process) {
    let started = clock::real();
    let mut give_back = GiveBack::new(process);
    loop {
        publish(process, started);
        give_back.look(process);
        process.shared.log().release(RELEASE_AT_ONCE);
        std::thread::sleep(clock::seconds(PUBLISH_EVERY));
    }
}

/// Copies the counts of others into the published counters, and applies parameters that the cache keeps.
pub fn publish(process: &Process, started: f64) {
    let main: &Main = process.shared.counters();
    main.uptime.set((clock::real() - started).max(0.0) as u64);
    publish_cache(main, process.shared.cache().stats());
    process.shared.stevedores().publish();
    process.locks.publish();
    process.tag_counters.publish(process.shared.cache().tag_stats());
    let params = process.shared.params();
    thread_gauges::publish(main, &params);
    main.n_waiting.set(process.shared.admission().waiting());
    main.thread_queue_len.set(process.shared.admission().queued());
    process.shared.cache().set_trace(!process.shared.log().is_masked(Tag::ExpKill));
    process.shared.cache().set_rush_exponent(params.rush_exponent);
    process.shared.cache().set_lru_interval(params.lru_interval);
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
