//! The token that clients of the admin listener must send: the content of a file of the user's, or of one that the manager
//! creates in the working directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::fault::{Fault, Outcome, os_error_text};
use crate::jail::Jail;
use crate::secret::random;

/// The file of a token that the manager creates.
pub const NAME: &str = "_.token";
const LENGTH: usize = 32;
/// Bounds of the length of a token in bytes.
const SHORTEST: usize = 16;
const LONGEST: usize = 512;
/// The rights that nobody but the owner and its group may have.
const OF_OTHERS: u32 = 0o007;
const WRITABLE_BY_GROUP: u32 = 0o020;

/// Reads the token of a file. Fails if others than its owner and group have access, or if it is no token.
pub fn read(path: &Path, jail: &Jail) -> Outcome<String> {
    let shown = path.display();
    let cannot = |error: io::Error| {
        Fault::usage(format!("Cannot read the token {shown} of -w ({})", os_error_text(&error)))
    };
    let (text, mode) = {
        let _root = jail.raise();
        let file = File::open(path).map_err(cannot)?;
        let facts = file.metadata().map_err(cannot)?;
        if !facts.is_file() {
            return Err(Fault::usage(format!("The token {shown} of -w is not a file")));
        }
        let mut text = String::new();
        file.take(LONGEST as u64 + 2).read_to_string(&mut text).map_err(cannot)?;
        (text, facts.mode())
    };
    if mode & (OF_OTHERS | WRITABLE_BY_GROUP) != 0 {
        return Err(Fault::usage(format!(
            "Others may use the token {shown} of -w: its rights must be 0640 or less (chmod 600 {shown})"
        )));
    }
    checked(&text).ok_or_else(|| {
        Fault::usage(format!(
            "The token {shown} of -w must be one line of {SHORTEST} to {LONGEST} letters, digits or any of -._~+/="
        ))
    })
}

/// Returns the token in a text, if it has the characters that a request can contain (RFC 6750).
fn checked(text: &str) -> Option<String> {
    let token = text.strip_suffix('\n').unwrap_or(text);
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    ((SHORTEST..=LONGEST).contains(&token.len()) && token.bytes().all(is_allowed)).then(|| token.to_owned())
}

/// Returns the token of the working directory, and creates it if there is none.
pub fn of_directory(jail: &Jail) -> Outcome<String> {
    let path = Path::new(NAME);
    if let Ok(found) = read(path, jail) {
        return Ok(found);
    }
    let cannot = |error: &io::Error| {
        Fault::plain(format!("Cannot create the token {NAME} of -w ({})", os_error_text(error)))
    };
    let mut bytes = [0; LENGTH];
    random(&mut bytes).map_err(|error| cannot(&error))?;
    let digit = |number: u8| char::from_digit(number.into(), 16).unwrap_or_default();
    let token: String = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    let _root = jail.raise();
    let _ = fs::remove_file(path);
    write(path, &token).map_err(|error| cannot(&error))?;
    Ok(token)
}

fn write(path: &Path, token: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(path)?;
    writeln!(file, "{token}")
}

/// Writes a token again if its file was removed. One that is there stays as it is.
pub fn restore(path: &Path, token: &str, jail: &Jail) -> io::Result<()> {
    let _root = jail.raise();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => write(path, token),
        found => found.map(drop),
    }
}

/// Removes the token of the working directory.
pub fn remove(jail: &Jail) {
    let _root = jail.raise();
    let _ = fs::remove_file(NAME);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_fit_into_a_header() {
        assert_eq!(checked("0123456789abcdef\n").as_deref(), Some("0123456789abcdef"));
        for wrong in [
            "",
            "short",
            "0123456789abcde\n\n",
            "0123456789 abcdef",
            "0123456789abcdé\u{1}",
            &"x".repeat(513),
        ] {
            assert_eq!(checked(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("lacquer-token-{}", std::process::id()));
        let jail = Jail::none();
        for (mode, is_accepted) in
            [(0o600, true), (0o640, true), (0o644, false), (0o660, false), (0o602, false)]
        {
            fs::write(&path, "0123456789abcdef").unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(read(&path, &jail).is_ok(), is_accepted, "{mode:o}");
        }
        fs::remove_file(&path).unwrap();
        assert!(read(&path, &jail).is_err());
    }

    #[test]
    fn only_a_token_that_was_removed_is_written_again() {
        let path = std::env::temp_dir().join(format!("lacquer-token-removed-{}", std::process::id()));
        let jail = Jail::none();
        for (token, expected) in
            [("0123456789abcdef", "0123456789abcdef"), ("fedcba9876543210", "0123456789abcdef")]
        {
            restore(&path, token, &jail).unwrap();
            assert_eq!(read(&path, &jail).unwrap(), expected);
        }
        fs::remove_file(&path).unwrap();
    }
}
