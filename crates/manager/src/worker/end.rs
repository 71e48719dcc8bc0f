//! The end of a worker: waits for it, and records it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use lacquer_http::date;
use lacquer_params::FeatureBits;
use rustix::process::Signal;

use super::process::{End, Worker, read_panic};
use crate::complain::Level;
use crate::manager::{Manager, seconds};
use crate::shm::now;

/// Returns a message if the signal that ended a worker means that its memory in one of these files could not be read or
/// written.
pub(super) fn lost_file<'a>(signal: Option<i32>, files: impl Iterator<Item = &'a Path>) -> Option<String> {
    let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
    (signal == Some(Signal::BUS.as_raw()) && !files.is_empty()).then(|| {
        format!(
            "Child died of an error of reading or writing the file of a storage ({}): the next one starts with empty \
             storages; check the disk and its free space",
            files.join(", ")
        )
    })
}

impl Manager {
    pub(super) fn await_end(&self, worker: &mut Worker, pid: u32) -> End {
        let complain = &self.complain;
        let on_line = |line: &str| Manager::report_output(complain, Level::Routine, pid, line);
        if let Some(end) = worker.wait(seconds(self.params.values().cli_timeout), on_line) {
            return end;
        }
        complain.report(Level::Error, &format!("Child ({pid}) not dying (waitpid = 0), killing"));
        {
            let _root = self.jail.raise();
            let _ = worker.kill_harder();
            if worker.wait(Duration::from_secs(1), on_line).is_none() {
                let _ = worker.kill_harder();
            }
        }
        worker.wait_killed(on_line).unwrap_or(End { code: Some(1), signal: None, core: false })
    }

    pub(super) fn record_end(&mut self, pid: u32, end: End) {
        let clean = end.code == Some(0);
        let mut text = format!("Child ({pid}) {}", if clean { "ended" } else { "died" });
        let counters = self.shm.as_ref().map(|shm| &shm.counters);
        if let Some(code) = end.code.filter(|code| *code != 0) {
            let _ = write!(text, " status={code}");
            self.exit_status |= 0x20;
            if let Some(counters) = counters {
                if code == 1 { counters.child_exit.add(1) } else { counters.child_stop.add(1) }
            }
        }
        if let Some(signal) = end.signal {
            let _ = write!(text, " signal={signal}");
            self.exit_status |= 0x40;
            if let Some(counters) = counters {
                counters.child_died.add(1);
            }
        }
        if end.core {
            text.push_str(" (core dumped)");
            if !self.params.values().feature.has(FeatureBits::NO_COREDUMP) {
                self.exit_status |= 0x80;
            }
            if let Some(counters) = counters {
                counters.child_dump.add(1);
            }
        }
        self.complain.report(if clean { Level::Routine } else { Level::Error }, &text);
    }

    pub(super) fn record_panic(&mut self, pid: u32) {
        let limit = self.params.values().panic_buffer;
        let Some(text_bytes) = self.child.panic_file.take().and_then(|file| read_panic(&file, limit)) else {
            return;
        };
        let text_bytes = String::from_utf8_lossy(&text_bytes);
        let date = date::format(now());
        let date = String::from_utf8_lossy(&date);
        let text = format!("Child ({pid}) Panic at: {date}\n{}", printable(&text_bytes));
        self.complain.report(Level::Error, &text);
        self.child.panic = Some(text);
        if let Some(shm) = &self.shm {
            shm.counters.child_panic.add(1);
        }
    }
}

/// Returns the text with unprintable characters escaped, except line feeds.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push('\n'),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\{:03o}", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bus_error_of_a_worker_with_a_file_is_one_of_the_file() {
        let files = || ["/a/one", "/b/two"].map(Path::new).into_iter();
        let text = lost_file(Some(7), files()).expect("a message");
        assert!(text.contains("(/a/one, /b/two)"), "{text}");
        for signal in [None, Some(6), Some(9), Some(11)] {
            assert_eq!(lost_file(signal, files()), None);
        }
        assert_eq!(lost_file(Some(7), std::iter::empty()), None);
    }
}
