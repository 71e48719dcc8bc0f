//! The command `storage.list`.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use lacquer_cache::{AGE_LIMITS, Ages};
use lacquer_cli::{human, json};
use lacquer_disk::{Figures, Phase, Stats};
use lacquer_sources::{clock, random};
use lacquer_storage::Stevedore;

use super::reply::Reply;
use crate::disk_counters::{CountedDisk, CountedRefusal};
use crate::process::Process;

/// Lists the storages with their figures. `methods` contains the method of each.
pub fn list(process: &Process, argv: &[String], methods: &[String]) -> Reply {
    let is_json = argv.get(1).is_some_and(|word| word == "-j");
    let now = clock::real();
    let ages =
        if is_json { process.shared().cache().sample_ages(now, random::bits64() as u32) } else { Vec::new() };
    let mut objects = Vec::new();
    let mut text = "Storage devices:\n".to_owned();
    for (index, stevedore) in process.shared().stevedores().all().iter().enumerate() {
        let method = methods.get(index).map_or("", String::as_str);
        let disks = process.disks().iter().filter(|disk| disk.stevedore() == stevedore.index());
        let refused = process.refused_disks().iter().filter(|disk| disk.stevedore() == stevedore.index());
        if is_json {
            let disks = disks.map(|disk| disk_json(disk, now));
            let disks: Vec<String> = disks.chain(refused.map(refused_json)).collect();
            let ages = ages.get(usize::from(stevedore.index())).copied().unwrap_or_default();
            objects.push(storage_json(stevedore, method, &ages, &disks));
        } else {
            let _ = writeln!(text, "\tstorage.{} = {method}", stevedore.name());
            let _ = writeln!(text, "\t\t{}", memory_text(stevedore));
            disks.for_each(|disk| {
                let _ = writeln!(text, "\t\t{}", disk_text(disk, now));
            });
            refused.for_each(|disk| {
                let _ = writeln!(text, "\t\t{}: failed: {}", disk.path().display(), disk.reason());
            });
        }
    }
    Reply::ok(if is_json { json::reply(2, argv, now, &objects.join(",\n")) } else { text })
}

fn objects(stevedore: &Stevedore) -> u64 {
    stevedore.counters().g_objects.load(Ordering::Relaxed)
}

fn memory_text(stevedore: &Stevedore) -> String {
    let size = stevedore.limit().map_or_else(String::new, |limit| format!(" of {}", human::bytes(limit)));
    let (used, objects) = (human::bytes(stevedore.used_space()), objects(stevedore));
    format!("memory: {used}{size} used, {objects} objects")
}

/// Returns the word for the state of a store.
fn state(figures: &Figures) -> &'static str {
    match figures.phase {
        Phase::Failing | Phase::Failed | Phase::Retired => "failed",
        _ if figures.is_stalled => "stalled",
        Phase::Recovering => "reading the index",
        Phase::Working => "working",
    }
}

fn disk_text(disk: &CountedDisk, now: f64) -> String {
    let store = disk.running().store();
    let (figures, stats) = (store.figures(), store.stats());
    let oldest = match figures.oldest {
        Some(at) => format!(", the oldest {} old", human::duration(now - at)),
        None => String::new(),
    };
    let Figures { used, size, objects, .. } = figures;
    let mut text = format!(
        "{}: {}, {} of {} used, {objects} objects{oldest}",
        disk.path().display(),
        state(&figures),
        human::bytes(used),
        human::bytes(size),
    );
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let Stats { reads, written, read_errors, write_errors, damaged, slow, cleared, .. } = stats;
    for (name, counter) in [("objects read", reads), ("objects written", written)] {
        let _ = write!(text, ", {} {name}", load(counter));
    }
    let faults = [
        ("read errors", read_errors),
        ("write errors", write_errors),
        ("damaged objects", damaged),
        ("slow operations", slow),
        ("times emptied", cleared),
    ];
    for (name, counter) in faults.into_iter().filter(|(_, counter)| load(counter) > 0) {
        let _ = write!(text, ", {} {name}", load(counter));
    }
    text
}

fn storage_json(stevedore: &Stevedore, method: &str, ages: &Ages, disks: &[String]) -> String {
    let size = stevedore.limit().map_or_else(|| "null".to_owned(), |limit| limit.to_string());
    let mut out = format!(
        "{{\n  \"name\": {},\n  \"storage\": {},\n  \"size\": {size},\n  \"used\": {},\n  \"objects\": {},\n  \
         \"ages\": {{\"limits\": {AGE_LIMITS:?}, \"objects\": {ages:?}}}",
        json::string(stevedore.name()),
        json::string(method),
        stevedore.used_space(),
        objects(stevedore),
    );
    if !disks.is_empty() {
        let _ = write!(out, ",\n  \"disks\": [\n{}\n  ]", disks.join(",\n"));
    }
    out.push_str("\n}");
    out
}

fn refused_json(disk: &CountedRefusal) -> String {
    format!(
        "    {{\n      \"path\": {},\n      \"state\": \"failed\",\n      \"reason\": {}\n    }}",
        json::string(&disk.path().to_string_lossy()),
        json::string(disk.reason()),
    )
}

fn disk_json(disk: &CountedDisk, now: f64) -> String {
    let store = disk.running().store();
    let figures = store.figures();
    let oldest = figures.oldest.map_or_else(|| "null".to_owned(), |at| format!("{:.0}", (now - at).max(0.0)));
    let mut out = format!(
        "    {{\n      \"path\": {},\n      \"state\": \"{}\",\n      \"size\": {},\n      \"used\": {},\n      \
         \"objects\": {},\n      \"oldest\": {oldest}",
        json::string(&disk.path().to_string_lossy()),
        state(&figures),
        figures.size,
        figures.used,
        figures.objects,
    );
    for (name, count) in store.stats().all() {
        let _ = write!(out, ",\n      \"{name}\": {count}");
    }
    out.push_str("\n    }");
    out
}
