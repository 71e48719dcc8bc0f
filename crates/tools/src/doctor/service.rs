//! Examines what belongs to one service: its limits, directories, secrets and web servers.

use super::facts::{Facts, Finding, Grade, Origin, Remedy, Secret, Store, shown};

/// The number of descriptors below which connections are refused on a busy site.
const DESCRIPTORS: u64 = 65_536;
/// The difference of two clocks in seconds that has an effect on the age of responses.
const SKEW: f64 = 5.0;
/// Milliseconds after which a web server is slow.
const SLOW: u64 = 1000;

pub fn examine(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![descriptors(facts), working_directory(facts)];
    if facts.storage_memory > 0 {
        findings.push(memory(facts));
    }
    findings.extend(facts.stores.iter().map(store));
    findings.extend(facts.secrets.iter().map(secret));
    for origin in &facts.origins {
        findings.push(reachability(origin));
        findings.extend(origin.date.map(|(theirs, ours)| clocks(&origin.name, theirs, ours)));
    }
    findings
}

/// Returns the soft limit of open files: `None` if the text has no such line; `u64::MAX` for no limit.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn descriptors(facts: &Facts) -> Finding {
    let whose = if facts.has_daemon { "the daemon" } else { "a program that is started here" };
    let (grade, is) = match facts.limits.as_deref().and_then(open_files) {
        None => (Grade::Unknown, "the limit on descriptors is unknown".to_owned()),
        Some(u64::MAX) => (Grade::Good, format!("{whose} may have any number of descriptors")),
        Some(limit) if limit >= DESCRIPTORS => (Grade::Good, format!("{whose} may have {limit} descriptors")),
        Some(limit) => (Grade::Better, format!("{whose} may have {limit} descriptors")),
    };
    let command = "systemctl edit lacquer, and there: [Service] LimitNOFILE=131072".to_owned();
    Finding {
        topic: "descriptors",
        grade,
        is,
        should: format!("at least {DESCRIPTORS}"),
        why: "each connection takes one; when they are used up, connections wait or are refused",
        remedy: if grade == Grade::Better { Remedy::Command(command) } else { Remedy::None },
    }
}

/// Returns the type of the file system of a path, from a list of mounts.
fn file_system<'a>(mounts: &'a str, path: &str) -> Option<&'a str> {
    let mut found: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split_whitespace().skip(1);
        let (Some(place), Some(kind)) = (words.next(), words.next()) else { continue };
        // Special characters of a place are written as octal numbers, and no working directory is there.
        let rest = path.strip_prefix(place.trim_end_matches('/'));
        let is_above = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        // Of several at one place, the last one is visible.
        if is_above && found.is_none_or(|(length, _)| place.len() >= length) {
            found = Some((place.len(), kind));
        }
    }
    found.map(|(_, kind)| kind)
}

fn working_directory(facts: &Facts) -> Finding {
    let kind = facts.files.get("/proc/self/mounts").and_then(|mounts| file_system(mounts, &facts.workdir));
    let path = shown(&facts.workdir);
    let (grade, is) = match kind {
        None => (Grade::Unknown, format!("the file system of {path} is unknown")),
        Some("tmpfs" | "ramfs") => (Grade::Good, format!("{path} is in memory")),
        Some(kind) => (Grade::Better, format!("{path} is on a disk ({})", shown(kind))),
    };
    Finding {
        topic: "log",
        grade,
        is,
        should: "a directory in memory (tmpfs)".to_owned(),
        why: "the working directory contains the log, which the kernel would write to the disk all the time",
        remedy: match grade {
            Grade::Better => Remedy::Command("start the daemon with -n /run/lacquer".to_owned()),
            _ => Remedy::None,
        },
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes >> 20)
}

/// Returns a value of /proc/meminfo in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn memory(facts: &Facts) -> Finding {
    let total = facts.files.get("/proc/meminfo").and_then(|text| meminfo(text, "MemTotal"));
    // The index and the memory of requests are not part of a storage.
    let needed = facts.storage_memory.saturating_add(facts.storage_memory / 7).saturating_add(64 << 20);
    let grade = match total {
        None => Grade::Unknown,
        Some(total) if needed > total => Grade::Bad,
        Some(_) => Grade::Good,
    };
    let total = total.map_or("an unknown amount of memory".to_owned(), megabytes);
    Finding {
        topic: "memory",
        grade,
        is: format!("storages of {} on a machine with {total}", megabytes(facts.storage_memory)),
        should: "storages that leave a seventh of their size for the index, and 64 MB".to_owned(),
        why: "the kernel ends the daemon when there is no memory left",
        remedy: match grade {
            Grade::Bad => Remedy::Command("lower the sizes of -s".to_owned()),
            _ => Remedy::None,
        },
    }
}

fn store(store: &Store) -> Finding {
    let path = shown(&store.path);
    let (grade, is, command) = match &store.free {
        Err(why) => (Grade::Bad, format!("{path}: {}", shown(why)), "correct the path of -s".to_owned()),
        Ok(Some(free)) if !store.exists && *free < store.wanted => (
            Grade::Bad,
            format!("{path}: {} are free, {} are wanted", megabytes(*free), megabytes(store.wanted)),
            "lower size= of -s, or use another disk".to_owned(),
        ),
        Ok(_) => (Grade::Good, format!("{path} can be used"), String::new()),
    };
    Finding {
        topic: "storage",
        grade,
        is,
        should: "a device, or a file system with room".to_owned(),
        why: "the daemon does not start without its storages",
        remedy: if grade == Grade::Good { Remedy::None } else { Remedy::Command(command) },
    }
}

fn secret(secret: &Secret) -> Finding {
    let path = shown(&secret.path);
    let (grade, is) = match &secret.mode {
        Err(why) => (Grade::Unknown, format!("{path}: {}", shown(why))),
        Ok(mode) if mode & 0o007 != 0 => {
            (Grade::Bad, format!("every user can use {path} ({:o})", mode & 0o777))
        }
        Ok(mode) if mode & 0o020 != 0 => {
            (Grade::Bad, format!("a group can change {path} ({:o})", mode & 0o777))
        }
        Ok(mode) => (Grade::Good, format!("{path} is protected ({:o})", mode & 0o777)),
    };
    Finding {
        topic: "secrets",
        grade,
        is,
        should: "a file that others than its owner and group cannot read".to_owned(),
        why: "who can read it can load VCL, purge everything, and stop the service",
        remedy: match grade {
            Grade::Bad => Remedy::Command(format!("chmod g-w,o-rwx {path}")),
            _ => Remedy::None,
        },
    }
}

fn reachability(origin: &Origin) -> Finding {
    let name = shown(&origin.name);
    let (grade, is) = match &origin.reached {
        Err(why) => (Grade::Bad, format!("{name}: {}", shown(why))),
        Ok(millis) if *millis > SLOW => (Grade::Better, format!("{name} took {millis} ms")),
        Ok(millis) => (Grade::Good, format!("{name} took {millis} ms")),
    };
    Finding {
        topic: "origin",
        grade,
        is,
        should: format!("a response within {SLOW} ms"),
        why: "visitors wait for it at each miss, and get an error page while it is down",
        remedy: match grade {
            Grade::Bad => Remedy::Command(format!("curl -sv -o /dev/null {}", with_scheme(&name))),
            _ => Remedy::None,
        },
    }
}

fn with_scheme(name: &str) -> String {
    if name.contains("://") { name.to_owned() } else { format!("http://{name}/") }
}

fn clocks(name: &str, theirs: f64, ours: f64) -> Finding {
    let skew = theirs - ours;
    let grade = if skew.abs() > SKEW { Grade::Bad } else { Grade::Good };
    Finding {
        topic: "clock",
        grade,
        is: format!("the clock of {} differs by {:.0} s", shown(name), skew.abs()),
        should: format!("at most {SKEW:.0} s"),
        why: "the age of a response follows from its Date: pages are cached too long or not at all",
        remedy: match grade {
            Grade::Bad => Remedy::Command("let both machines keep the time (timedatectl status)".to_owned()),
            _ => Remedy::None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_mounts_of_any_bytes() {
        for (text, expected) in [
            (
                "Limit Soft Hard\nMax open files            1024                 4096                 files\n",
                Some(1024),
            ),
            ("Max open files            unlimited            unlimited            files", Some(u64::MAX)),
            ("Max open files", None),
            ("Max open files -1", None),
            ("Max open files 99999999999999999999999", None),
            ("", None),
            ("\0\u{fffd}", None),
        ] {
            assert_eq!(open_files(text), expected, "{text:?}");
        }
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\nx\n\n/dev/vdb /runner xfs rw 0 0\nt /run/deep ext4 rw\nt /run/deep tmpfs rw\n";
        for (path, expected) in [
            ("/run/lacquer", Some("tmpfs")),
            ("/run", Some("tmpfs")),
            ("/runner/x", Some("xfs")),
            ("/run/deep/x", Some("tmpfs")),
            ("/var", Some("ext4")),
            ("relative", None),
        ] {
            assert_eq!(file_system(mounts, path), expected, "{path}");
        }
        assert_eq!(file_system("", "/run"), None);
        assert_eq!(meminfo("MemFree: 1 kB\nMemTotal:       2048 kB\n", "MemTotal"), Some(2 << 20));
        assert_eq!(meminfo("MemTotal: x", "MemTotal"), None);
        assert_eq!(meminfo("MemTotal: 18446744073709551615 kB", "MemTotal"), None);
    }
}
