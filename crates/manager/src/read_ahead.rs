//! Reading the program ahead of its use. After a start of the machine, or a crash that emptied the page cache, each part of
//! the program would be read when it is first needed, and the process would wait for each.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Asks the kernel to read the parts of this program that are in memory, and does not wait. Failures only make the start
/// slower.
pub(crate) fn read_program_ahead() {
    let _ = try_read_ahead();
}

fn try_read_ahead() -> io::Result<()> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let Some(length) = NonZeroU64::new(mapped_length(&maps, &program)) else { return Ok(()) };
    // The file may have been replaced, so it is opened by the process and not by its name.
    let file = File::open("/proc/self/exe")?;
    Ok(fadvise(&file, 0, Some(length), Advice::WillNeed)?)
}

/// Returns the length of the beginning of the program's file that contains all parts in memory: symbols and debug
/// information follow it. `maps` is the list of the process's mappings.
fn mapped_length(maps: &str, program: &Path) -> u64 {
    maps.lines().filter_map(|line| end_in_file(line, program)).max().unwrap_or(0)
}

/// Returns the offset in the program's file at which a mapping ends, if it is one of that file.
fn end_in_file(line: &str, program: &Path) -> Option<u64> {
    let mut words = line.splitn(6, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    let offset = words.nth(1)?;
    let path = words.nth(2)?.trim_start();
    if Path::new(path) != program {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    number(offset)?.checked_add(number(end)?.checked_sub(number(begin)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_mapped_beginning_of_the_program_counts() {
        let maps = "55d0-55d5 r--p 00000000 fe:00 12                         /usr/sbin/lacquerd\n\
                    55d5-55e0 r-xp 00000005 fe:00 12                         /usr/sbin/lacquerd\n\
                    7f00-7f99 r-xp 00007000 fe:00 13                         /lib/libc.so.6\n\
                    7fa0-7fa1 rw-p 00000000 00:00 0 \n";
        assert_eq!(mapped_length(maps, Path::new("/usr/sbin/lacquerd")), 0x10);
        assert_eq!(mapped_length(maps, Path::new("/usr/sbin/other")), 0);
    }

    #[test]
    fn lines_of_another_form_are_ignored() {
        for line in
            ["", " ", "-", "5-1 r 0 a b /p", "zz-zz r 0 a b /p", "1-2 r ffffffffffffffff a b /p", "1-2"]
        {
            assert_eq!(end_in_file(line, Path::new("/p")), None, "{line:?}");
        }
    }

    #[test]
    fn this_program_is_found() {
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let length = mapped_length(&maps, &program);
        assert!(length > 0 && length <= program.metadata().unwrap().len().next_multiple_of(4096), "{length}");
        try_read_ahead().unwrap();
    }
}
