//! The VCL that the options of `lacquer run` mean, as a file beside the working directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lacquer_inspect::why::WRITTEN;
use lacquer_manager::WRITTEN_VCL;
use rustix::fs::OFlags;

use crate::failure::Failure;

/// The end of the file's name. Users may have a VCL with the name of the directory and the usual ending.
const ENDING: &str = ".run.vcl";
/// A file that is removed unless the daemon takes the place of this process. If the daemon then fails to start, it removes
/// the file.
pub struct WrittenVcl {
    path: PathBuf,
}

impl WrittenVcl {
    /// Writes the file, and adds it to the daemon's arguments. `name` is the working directory.
    pub fn add(command: &mut Command, name: &Path, text: &str) -> Result<WrittenVcl, Failure> {
        let mut path = name.as_os_str().to_owned();
        path.push(ENDING);
        let path = PathBuf::from(path);
        let failed =
            |error: io::Error| Failure::new(format_args!("cannot write {}: {error}", path.display()));
        remove_old(&path).map_err(failed)?;
        // Where everyone may create files, another user's must not be written through.
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let written = writeln!(file, "{text}{WRITTEN}").map_err(failed);
        let this = WrittenVcl { path };
        written?;
        command.arg("-f").arg(&this.path).env(WRITTEN_VCL, &this.path);
        Ok(this)
    }
}

impl Drop for WrittenVcl {
    fn drop(&mut self) {
        // The command has failed, and reports why.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the file of an earlier start, and none that someone else has written.
fn remove_old(path: &Path) -> io::Result<()> {
    let foreign = || io::Error::other("a file that lacquer run has not written is there; rename it");
    // Where everyone may create files, another user may have put a link there, or a pipe that nobody writes to.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(old) if is_own(&old)? => fs::remove_file(path),
        Ok(_) => Err(foreign()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) => Err(foreign()),
        Err(error) => Err(error),
    }
}

/// Returns whether a file is empty, or its last line is the one by which a later start knows that it may replace the file.
fn is_own(mut old: &File) -> io::Result<bool> {
    let last = format!("{WRITTEN}\n");
    let found = old.metadata()?;
    if !found.is_file() {
        return Ok(false);
    }
    old.seek(SeekFrom::Start(found.len().saturating_sub(last.len() as u64)))?;
    let mut end = Vec::new();
    old.take(last.len() as u64).read_to_end(&mut end)?;
    Ok(end.is_empty() || end == last.as_bytes())
}

#[cfg(test)]
mod tests {
    use lacquer_testing::Folder;

    use super::*;

    #[test]
    fn only_its_own_file_is_replaced() {
        let folder = Folder::new("written-vcl");
        let add = || WrittenVcl::add(&mut Command::new("true"), &folder.join("site"), "vcl 4.1;\n");
        std::mem::forget(add().expect("there is no file"));
        assert_eq!(folder.read("site.run.vcl"), format!("vcl 4.1;\n{WRITTEN}\n"));
        drop(add().expect("it is replaced"));
        assert!(!folder.join("site.run.vcl").exists());
        folder.file("site.run.vcl", "vcl 4.1; # mine\n");
        assert!(add().is_err_and(|failure| failure.texts().0.contains("rename it")));
        assert_eq!(folder.read("site.run.vcl"), "vcl 4.1; # mine\n");
    }

    #[test]
    fn a_long_file_and_a_link_are_no_files_of_its_own() {
        let folder = Folder::new("written-vcl-others");
        let path = folder.join("site.run.vcl");
        let long = File::create(&path).expect("writable");
        long.set_len(1 << 40).expect("it has holes");
        let is_refused = || remove_old(&path).is_err_and(|error| error.to_string().contains("rename it"));
        assert!(is_refused());
        let own = folder.file("other", format!("vcl 4.1;\n{WRITTEN}\n"));
        for target in [own, folder.join("none")] {
            fs::remove_file(&path).expect("it is there");
            std::os::unix::fs::symlink(target, &path).expect("writable");
            assert!(is_refused());
        }
        assert!(folder.join("other").exists());
        drop(long);
    }
}
