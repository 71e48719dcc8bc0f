//! `lacquer fmt`: formats VCL files.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::ExitCode;

use lacquer_manager::{show, show_bytes};
use lacquer_tools::report;

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::findings::exit_code;

/// Maximum size of a file in bytes. A larger one is no VCL.
const MAX_SIZE: u64 = 64 << 20;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let (only_check, to_stdout) = (values.has("check"), values.has("stdout"));
    if only_check && to_stdout {
        return Err(Failure::new("--check and --stdout cannot be combined")
            .hint("--check lists the files that are not formatted, --stdout prints them"));
    }
    let (mut is_fine, mut is_unreadable) = (true, false);
    for file in &values.operands {
        let text = match read(file) {
            Ok(text) => text,
            Err(failure) => {
                failure.report();
                is_unreadable = true;
                continue;
            }
        };
        let name = if file == "-" { "<stdin>" } else { file };
        let formatted = match lacquer_tools::format(name, &text) {
            Ok(formatted) => formatted,
            Err(diagnostic) => {
                let has_colors = colors::wanted(io::stderr().is_terminal());
                eprintln!("{}{name}: not changed", report::text(&diagnostic, has_colors));
                is_fine = false;
                continue;
            }
        };
        if only_check {
            if formatted != text {
                show(&format!("{name}: not formatted\n"));
                is_fine = false;
            }
        } else if to_stdout || file == "-" {
            show_bytes(&formatted);
        } else if formatted != text {
            replace(Path::new(file), &formatted)
                .map_err(|error| Failure::new(format_args!("cannot write {file}: {error}")))?;
            show(&format!("{name}: formatted\n"));
        }
    }
    Ok(exit_code(is_unreadable, is_fine))
}

/// Reads a file, or standard input if its name is a dash.
pub fn read(file: &str) -> Result<Vec<u8>, Failure> {
    contents(file).map_err(|error| Failure::new(format_args!("{file}: {error}")))
}

/// As [`read`], with an error that does not name the file.
pub fn contents(file: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let input: Box<dyn Read> = match file {
        "-" => Box::new(io::stdin()),
        file => Box::new(fs::File::open(file)?),
    };
    input.take(MAX_SIZE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_SIZE {
        return Err(io::Error::other(format!("larger than {} MiB", MAX_SIZE >> 20)));
    }
    Ok(text)
}

/// Replaces the contents of a file at once: after a failure, the file is as it was. Rights and owner remain.
fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let file = file.canonicalize()?;
    let old = fs::metadata(&file)?;
    if !old.is_file() {
        return Err(io::Error::other("is not a regular file; use --stdout"));
    }
    // A file without the right to write is not to be changed, even if its folder could be.
    OpenOptions::new().write(true).open(&file)?;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let path = Path::new(&name);
    let mut new = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut write = || {
        new.write_all(text)?;
        let made = new.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            chown(path, Some(old.uid()), Some(old.gid()))?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(old.mode()))?;
        new.sync_all()?;
        fs::rename(path, &file)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}
