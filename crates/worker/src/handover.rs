//! The handover of the objects in memory to another worker, which starts while this one serves requests.

use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use lacquer_cache::{Cache, Evicted};
use lacquer_cli::status;
use lacquer_sources::clock;
use lacquer_storage::Stevedore;

use crate::control::Reply;
use crate::process::Process;
use crate::successor::Handover;

/// The number of objects that leave the index of a worker that has retired, in each round of the main thread.
const DROPPED_AT_ONCE: usize = 20_000;

/// The longest time for which a handover waits for purges, in seconds, and the time between two checks.
const LONGEST_PURGE: f64 = 10.0;
const PURGE_CHECK: Duration = Duration::from_millis(1);

fn storages<'a>(
    handover: &'a Handover,
    process: &'a Process,
) -> impl Iterator<Item = (&'a Stevedore, &'a OwnedFd)> {
    let all = process.shared().stevedores().all();
    handover.pins.iter().filter_map(|(index, pins)| Some((all.get(*index)?, pins)))
}

fn done(outcome: Result<(), String>) -> Reply {
    match outcome {
        Ok(()) => Reply::ok(""),
        Err(why) => Reply::error(status::CANT, why),
    }
}

/// Freezes the memory of objects, and sends invalidations to the next worker from now on.
pub fn hand_over(process: &Process) -> Reply {
    let Some(handover) = process.handover() else { return Reply::ok("") };
    let begin = || -> Result<(), String> {
        let socket = handover.successor.as_ref().ok_or("there is no socket for the next worker")?;
        let socket = socket.try_clone().map_err(|e| e.to_string())?;
        // Before the other worker copies the table of objects: each invalidation is in it, or is sent.
        handover.peers.open(process.shared(), socket)?;
        await_earlier_purges(process.shared().cache())?;
        for (stevedore, pins) in storages(handover, process) {
            stevedore.freeze(pins.as_fd()).map_err(|e| format!("storage {}: {e}", stevedore.name()))?;
        }
        process.disks().iter().for_each(|disk| disk.running().retire());
        Ok(())
    };
    let outcome = begin();
    if outcome.is_err() {
        resume(process);
    }
    done(outcome)
}

/// Waits until the purges have ended that began before the next worker receives purges: it would take over the objects that
/// they have not reached yet.
fn await_earlier_purges(cache: &Cache) -> Result<(), String> {
    let mut earlier = cache.invalidations_so_far();
    let end = clock::monotonic() + LONGEST_PURGE;
    while !earlier.have_ended() {
        if clock::monotonic() >= end {
            return Err("a purge is in progress; try again later".to_owned());
        }
        sleep(PURGE_CHECK);
    }
    Ok(())
}

/// Continues after a handover that failed.
pub fn resume(process: &Process) -> Reply {
    if let Some(handover) = process.handover() {
        handover.udp.resume();
        // Purges still wait for the next worker: none is answered that a disk has not recorded.
        process.disks().iter().for_each(|disk| disk.running().disown());
        handover.peers.pause();
        storages(handover, process).for_each(|(stevedore, _)| stevedore.thaw());
    }
    Reply::ok("")
}

/// Leaves the reception of datagrams to another worker, which has this number of sockets of each listener.
pub fn leave_datagrams(process: &Process, sockets: usize) -> Reply {
    done(process.handover().map_or(Ok(()), |handover| handover.udp.stop(sockets)))
}

/// Reports the memory that is still in use.
pub fn report_use(process: &Process) -> Reply {
    let report = |handover: &Handover| {
        storages(handover, process).try_for_each(|(stevedore, pins)| stevedore.report_use(pins.as_fd()))
    };
    done(process.handover().map_or(Ok(()), report).map_err(|e| e.to_string()))
}

/// Uses the memory that the previous worker does not use anymore.
pub fn release_memory(process: &Process, all: bool) -> Reply {
    let release = |handover: &Handover| {
        let pins = |file| if all { None } else { Some(file) };
        storages(handover, process)
            .try_for_each(|(stevedore, file)| stevedore.release_pins(pins(file.as_fd())))
    };
    done(process.handover().map_or(Ok(()), release).map_err(|e| e.to_string()))
}

/// Drops objects that no request uses, in a worker that has retired, so that the next one can use their memory.
pub fn drop_objects(process: &Process) {
    let Some(handover) = process.handover() else { return };
    for (stevedore, _) in storages(handover, process) {
        for _ in 0..DROPPED_AT_ONCE {
            if process.shared().cache().nuke_one(stevedore.index(), false, &mut |_| {}) == Evicted::Nothing {
                break;
            }
        }
    }
}
