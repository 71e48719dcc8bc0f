//! Compares the sizes of `--storage` with the memory and the file systems of this machine, before the daemon starts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lacquer_disk::{LEAST_SIZE, path_of};
use lacquer_manager::machine_memory;
use lacquer_params::number::parse_bytes;

use crate::failure::Failure;

/// The least size of a storage in memory over a file that is proposed, in bytes.
const LEAST_FILE: u64 = 1 << 20;

/// Fails if a storage cannot have its size here. `given` is the text of the user, `argument` that of `lacquerd -s`.
pub fn check(given: &str, argument: &str) -> Result<(), Failure> {
    let mut words = argument.split(',');
    let kind = words.next().unwrap_or_default();
    let kind = kind.rsplit_once('=').map_or(kind, |(_, kind)| kind);
    let words: Vec<&str> = words.collect();
    let wrong = |why: &str| Failure::new(format_args!("--storage {}: {why}", given.escape_debug()));
    let size = |text: &str| {
        let hint = "write a number and a unit, such as 512M or 10G";
        parse_bytes(text, None).map_err(|_| wrong(&format!("`{text}` is not a size")).hint(hint))
    };
    match (kind, &words[..]) {
        ("malloc" | "default", [text, ..]) if !text.is_empty() => {
            let memory = memory();
            if size(text)? <= memory {
                return Ok(());
            }
            let hint = format!("write --storage {}, or --storage disk,FILE,size={text}", shown(memory / 2));
            Err(wrong(&format!("there are {} of memory", shown(memory))).hint(hint))
        }
        ("file", [path, text, ..]) if !text.contains('%') => {
            let hint = |size: &str| format!("write --storage file,{path},{size}");
            fits(Path::new(path), size(text)?).map_err(|misfit| misfit.failure(LEAST_FILE, &wrong, &hint))
        }
        ("disk", [path, options @ ..]) if !path.is_empty() => {
            let path = Path::new(path);
            let file = path_of(path);
            let hint = |size: &str| format!("write --storage disk,{},size={size}", path.display());
            let Some(text) = options.iter().find_map(|option| option.strip_prefix("size=")) else {
                return if file.exists() {
                    Ok(())
                } else {
                    Err(wrong("there is no store").hint(format!("{}, to make one", hint("10G"))))
                };
            };
            let size = size(text)?;
            if size < LEAST_SIZE {
                return Err(wrong(&format!("{text} is too small")).hint(hint("16M")));
            }
            fits(&file, size).map_err(|misfit| misfit.failure(LEAST_SIZE, &wrong, &hint))
        }
        _ => Ok(()),
    }
}

/// The reason why a file cannot have a size, and a size that it can have.
struct Misfit {
    why: String,
    possible: u64,
}

impl Misfit {
    /// Returns the error, with the option to write. A size below `least` is no storage.
    fn failure(
        self,
        least: u64,
        wrong: &dyn Fn(&str) -> Failure,
        option: &dyn Fn(&str) -> String,
    ) -> Failure {
        let hint = if self.possible < least {
            format!("make room there, or {}, with a file on another file system", option(&shown(least)))
        } else {
            option(&shown(self.possible))
        };
        wrong(&self.why).hint(hint)
    }
}

/// Checks that a file can have a size.
fn fits(file: &Path, size: u64) -> Result<(), Misfit> {
    let found = fs::metadata(file).ok();
    // A device has its own size, and a store that exists has its room.
    if found.as_ref().is_some_and(|found| !found.is_dir() && (!found.is_file() || found.len() >= size)) {
        return Ok(());
    }
    let folder = match &found {
        Some(found) if found.is_dir() => file.to_owned(),
        _ => file
            .parent()
            .filter(|path| !path.as_os_str().is_empty())
            .map_or_else(|| PathBuf::from("."), Path::to_owned),
    };
    let Ok(system) = rustix::fs::statvfs(&folder) else {
        let why = format!("the folder {} cannot be used", folder.display());
        return Err(Misfit { why, possible: size });
    };
    let used = found.filter(fs::Metadata::is_file).map_or(0, |found| found.blocks().saturating_mul(512));
    let free = system.f_bavail.saturating_mul(system.f_frsize).saturating_add(used);
    // A file system in memory may have no limit.
    if system.f_blocks == 0 || size <= free {
        return Ok(());
    }
    Err(Misfit { why: format!("{} has room for {}", folder.display(), shown(free)), possible: free / 2 })
}

/// Returns the memory and swap space of this machine in bytes, or the limit of this process's group if that is lower.
fn memory() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let limits = Path::new(group).ancestors().filter_map(|group| {
        fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join("memory.max"))
            .ok()?
            .trim()
            .parse()
            .ok()
    });
    limits.fold(machine_memory(), u64::min)
}

/// Returns a size as it can be written.
fn shown(bytes: u64) -> String {
    match bytes >> 20 {
        0..10_240 => format!("{}M", bytes >> 20),
        _ => format!("{}G", bytes >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_one_that_does() {
        let folder = std::env::temp_dir();
        let folder = folder.display();
        let texts = |given: &str| {
            check(given, &crate::spec::storage(Some(given)).expect("a storage")).map_err(Failure::texts)
        };
        for given in [
            "900T".to_owned(),
            "100000G".to_owned(),
            "s1=malloc,100000G".to_owned(),
            format!("file,{folder}/lacquer-room,90000T"),
            format!("disk,{folder}/lacquer-room,size=90000T"),
            format!("disk,{folder},size=90000T"),
            format!("disk,{folder}/lacquer-room"),
            format!("disk,{folder}/lacquer-room,size=1M"),
            "disk,/nonexistent/folder/x,size=1G".to_owned(),
            "malloc,1X".to_owned(),
            "file,/tmp/x,12Q".to_owned(),
        ] {
            let (what, hint) = texts(&given).expect_err(&given);
            assert!(what.starts_with(&format!("--storage {given}: ")), "{what}");
            assert!(hint.is_some_and(|hint| hint.contains("write ")), "{given}");
        }
        for given in ["16M", "malloc", "default,32M", &format!("file,{folder}/lacquer-room,16M"), "debug,1X"]
        {
            assert_eq!(texts(given), Ok(()), "{given}");
        }
    }
}
