//! `lacquer storage`: makes, verifies and describes stores for objects on a disk.

use std::fmt::Write as _;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use lacquer_cli::human::{bytes, duration};
use lacquer_disk::{
    Aligned, Blocks, FileDevice, Layout, OpenError, Report, class_limit, enlarge, open_file, path_of, report,
};
use lacquer_manager::show as print;
use lacquer_params::number::parse_bytes;

use crate::args::Values;
use crate::failure::Failure;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn path(values: &Values) -> PathBuf {
    path_of(Path::new(values.operand().unwrap_or_default()))
}

fn open(path: &Path, create: bool) -> Result<File, Failure> {
    let failure = |error| Failure::new(format_args!("{}: {error}", path.display()));
    open_file(path, create).map_err(failure)
}

pub fn create(values: &Values) -> Result<ExitCode, Failure> {
    let path = path(values);
    let was_there = path.exists();
    let created = create_at(&path, values);
    if created.is_err() && !was_there {
        let _ = std::fs::remove_file(&path);
    }
    created
}

fn create_at(path: &Path, values: &Values) -> Result<ExitCode, Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", path.display()));
    let size = match values.one("size") {
        Some(text) => {
            Some(parse_bytes(text, None).map_err(|fault| failure(&format!("--size {text}: {fault}")))?)
        }
        None => None,
    };
    let needs_size = || failure(&"a new file needs a size").hint("add --size, such as --size 100G");
    if size.is_none() && !path.exists() {
        return Err(needs_size());
    }
    let file = open(path, true)?;
    let found = file.metadata().map_err(|error| failure(&error))?;
    let is_file = found.is_file();
    let again = file.try_clone().map_err(|error| failure(&error))?;
    let device = FileDevice::new(again).map_err(|error| failure(&error))?;
    match Layout::open(&device) {
        _ if values.has("force") => {}
        Err(OpenError::Empty) if (!is_file || found.len() == 0 || device.size() > 0) && is_blank(&device) => {
        }
        Err(OpenError::Empty) => return Err(failure(&OpenError::Foreign)),
        Ok(_) => {
            let hint = "what it contains is lost if you add --force";
            return Err(failure(&"there is a store already").hint(hint));
        }
        Err(error) => return Err(failure(&error)),
    }
    match size {
        Some(size) if is_file => {
            // Checked before the file changes.
            Layout::plan(size, 0, 0.0).map_err(|error| failure(&error))?;
            enlarge(&file, size)
                .map_err(|error| failure(&format!("cannot reserve {size} bytes: {error}")))?;
        }
        Some(_) => eprintln!("{}: --size is ignored: a device is used as a whole", path.display()),
        None if is_file && device.size() == 0 => {
            return Err(needs_size());
        }
        _ => {}
    }
    let device = FileDevice::new(file).map_err(|error| failure(&error))?;
    let id = RandomState::new().hash_one(now().to_bits());
    let layout = Layout::plan(device.size(), id, now()).map_err(|error| failure(&error))?;
    layout.create(&device).map_err(|error| failure(&error))?;
    let size = bytes(layout.size());
    print(&format!(
        "{}: {size} in {} segments of {}\n",
        path.display(),
        layout.segments,
        bytes(layout.segment)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the beginning of a device, where file systems keep their marks, contains only zeros.
fn is_blank(device: &FileDevice) -> bool {
    let mut buffer = Aligned::new(device.size().min(1 << 20) as usize);
    let is_read = device.read(0, buffer.bytes_mut()).is_ok();
    is_read && buffer.bytes().iter().all(|&byte| byte == 0)
}

/// Reads a store. Shows the progress on a terminal if the records are verified.
fn read(path: &Path, verify: bool) -> Result<Report, Failure> {
    let failure = |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", path.display()));
    let device = FileDevice::new(open(path, false)?).map_err(|error| failure(&error))?;
    let shows = verify && std::io::stderr().is_terminal();
    let began = Instant::now();
    let mut progress = |done: u64, all: u64| {
        if shows {
            let rate = done as f64 / began.elapsed().as_secs_f64().max(0.001);
            let share = 100 * done / all.max(1);
            let bar = "#".repeat(share as usize / 4);
            eprint!("\r[{bar:<25}] {share:3} %  {}/s ", bytes(rate as u64));
            let _ = std::io::stderr().flush();
        }
    };
    let found = report(&device, verify, now(), &mut progress).map_err(|error| failure(&error));
    if shows {
        eprintln!();
    }
    found
}

pub fn check(values: &Values) -> Result<ExitCode, Failure> {
    let path = path(values);
    let report = read(&path, true)?;
    let mut text = describe(&path, &report);
    for (slot, error) in &report.unreadable {
        let _ = writeln!(text, "segment {slot} cannot be read: {error}");
    }
    for place in report.damaged.iter().take(10) {
        let _ = writeln!(text, "the object at byte {place} is damaged");
    }
    for place in &report.journal.mended {
        let _ =
            writeln!(text, "the journal is damaged at byte {place}; there is a copy, and nothing is lost");
    }
    if let Some(place) = report.journal.lost {
        let _ = writeln!(
            text,
            "the journal is damaged at byte {place}, and purges and bans are lost: the daemon will drop all objects"
        );
    }
    let of_journal = report.journal.mended.len() + usize::from(report.journal.lost.is_some());
    let faults = report.damaged.len() + report.unreadable.len() + of_journal;
    if report.damaged.len() > 10 {
        let _ = writeln!(text, "{} more objects are damaged", report.damaged.len() - 10);
    }
    let _ = match faults {
        0 => writeln!(text, "all checksums are correct"),
        _ => writeln!(text, "{faults} faults; the daemon treats damaged objects as missing"),
    };
    print(&text);
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn show(values: &Values) -> Result<ExitCode, Failure> {
    let path = path(values);
    print(&describe(&path, &read(&path, false)?));
    Ok(ExitCode::SUCCESS)
}

fn describe(path: &Path, report: &Report) -> String {
    let mut text = String::new();
    let Some(layout) = &report.layout else { return text };
    let age = duration(now() - layout.created);
    let _ = writeln!(text, "{}: format version {}, made {age} ago", path.display(), layout.version);
    let (used, all, each) = (report.used.count, layout.segments, bytes(layout.segment));
    let _ = writeln!(text, "  size      {}, {used} of {all} segments of {each} in use", bytes(layout.size()));
    let (objects, size) = (report.objects, bytes(report.bytes));
    let oldest = report
        .used
        .oldest
        .map_or_else(String::new, |at| format!(", the oldest {} old", duration(now() - at)));
    let _ = writeln!(text, "  objects   {objects} with {size}{oldest}");
    let (purged, expired) = (report.purged, report.expired);
    let _ = writeln!(text, "  not used  {purged} purged, {expired} expired");
    let _ = writeln!(
        text,
        "  journal   {} purges, {} bans, last {}",
        report.journal.purges, report.bans, report.last_ban
    );
    let most = report.sizes.iter().copied().max().unwrap_or(0).max(1);
    for (class, &count) in report.sizes.iter().enumerate().filter(|(_, count)| **count > 0) {
        let bar = "#".repeat((40 * count / most) as usize);
        let _ = writeln!(text, "  up to {:>8} {count:>10} {bar}", bytes(class_limit(class)));
    }
    text
}
