//! The state of a storage in a file: it decides at the start of the daemon whether the objects in the file may be taken
//! over. Pure; `survival.rs` reads and writes it.
//!
//! ```text
//! 0   "LQSTFILE"     8   u32 version             12  u32 status: 0 unusable, 1 in use, 2 synced
//! 16  16 bytes id of the boot of the machine     32  u64 id of the set of storages
//! 40  u32 number in the set                      44  u32 storages in the set
//! 48  u64 size       56  u64 number of the file  64  u64 number of the table of records
//! 72  i64 time of the last change of the file in nanoseconds, if it is synced
//! 80  u32 early deaths of workers                84  u32 0
//! 88  u64 checksum of bytes 0 to 87 (XXH3)
//! ```
//!
//! The number of a file is the XXH3 of its inode and of the time of its creation in nanoseconds, or 0 if that is unknown.
//!
//! - In use: a daemon runs, or was killed. What it wrote is in the page cache, thus complete until the machine stops.
//! - Synced: the daemon has ended, and the contents are on the device. Nothing has changed since.
//! - Unusable: the contents must not be taken over. Purges may be missing, or an upgrade was interrupted.
//!
//! The bans of all storages are in the first one. The objects of a storage are thus taken over only together with those
//! of all storages of its set.

use twox_hash::XxHash3_64;

/// The version of this format, of the table of records and of the objects. Raise it when one of them changes.
pub const VERSION: u32 = 1;
pub const LENGTH: usize = 96;
const MAGIC: [u8; 8] = *b"LQSTFILE";
const CHECKED: usize = LENGTH - 8;

/// Tells whether the contents may be taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Unusable,
    InUse,
    Synced,
}

/// The set of storages that a daemon uses together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    pub set: u64,
    pub number: u32,
    pub count: u32,
}

/// The properties of the files by which another file is recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub size: u64,
    pub file: u64,
    pub records: u64,
    /// The time of the last change.
    pub changed: i64,
}

/// The state of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub status: Status,
    pub boot: Boot,
    pub membership: Membership,
    pub identity: Identity,
    pub early_deaths: u32,
}

/// The id of the boot of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boot([u8; 16]);

/// The reason why a state cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// There is none.
    Missing,
    Damaged,
    Version(u32),
    /// The file contains something else.
    Foreign,
}

impl Boot {
    /// Parses the kernel's text: hexadecimal digits and hyphens.
    pub fn parse(text: &str) -> Option<Boot> {
        let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
        let is_id = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
        let id = u128::from_str_radix(&digits, 16).ok().filter(|&id| is_id && id != 0)?;
        Some(Boot(id.to_be_bytes()))
    }
}

impl State {
    pub fn to_bytes(self) -> [u8; LENGTH] {
        let Membership { set, number, count } = self.membership;
        let Identity { size, file, records, changed } = self.identity;
        let pair = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
        let status = match self.status {
            Status::Unusable => 0,
            Status::InUse => 1,
            Status::Synced => 2,
        };
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(MAGIC);
        bytes.extend(pair(VERSION, status));
        bytes.extend(self.boot.0);
        bytes.extend(set.to_le_bytes());
        bytes.extend(pair(number, count));
        for word in [size, file, records, changed.cast_unsigned()] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(pair(self.early_deaths, 0));
        let checksum = XxHash3_64::oneshot(&bytes);
        bytes.extend(checksum.to_le_bytes());
        let mut all = [0; LENGTH];
        all.copy_from_slice(&bytes);
        all
    }

    /// Reads the bytes of a file, or more than [`LENGTH`] of them.
    pub fn read(bytes: &[u8]) -> Result<State, Unreadable> {
        // A cut of power can leave zeros in a new file.
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(Unreadable::Missing);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(if bytes.len() == LENGTH { Unreadable::Damaged } else { Unreadable::Foreign });
        }
        let word = |at: usize| bytes.get(at..at + 8).and_then(|part| part.first_chunk()).copied();
        let number = |at: usize| word(at).map_or(0, u64::from_le_bytes);
        let (low, high) = (|at: usize| number(at) as u32, |at: usize| (number(at) >> 32) as u32);
        let is_sound = bytes.len() >= LENGTH && XxHash3_64::oneshot(&bytes[..CHECKED]) == number(CHECKED);
        // Another version may have another length and checksum.
        if bytes.len() >= 12 && low(8) != VERSION {
            return Err(Unreadable::Version(low(8)));
        }
        let status = match high(8) {
            _ if !is_sound => return Err(Unreadable::Damaged),
            0 => Status::Unusable,
            1 => Status::InUse,
            2 => Status::Synced,
            _ => return Err(Unreadable::Damaged),
        };
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[16..32]);
        Ok(State {
            status,
            boot: Boot(boot),
            membership: Membership { set: number(32), number: low(40), count: high(40) },
            identity: Identity {
                size: number(48),
                file: number(56),
                records: number(64),
                changed: number(72).cast_signed(),
            },
            early_deaths: low(80),
        })
    }

    /// Returns whether the objects may be taken over from files that are now as `found`. The error contains the reason,
    /// unless it is usual.
    pub fn judge(&self, found: &Identity, boot: Option<Boot>) -> Result<(), Option<&'static str>> {
        let known = &self.identity;
        if self.status == Status::Unusable {
            return Err(None);
        }
        if known.size != found.size {
            return Err(Some("its size has changed"));
        }
        if (known.file, known.records) != (found.file, found.records) {
            return Err(Some("one of its files was replaced"));
        }
        if self.status == Status::Synced && known.changed != found.changed {
            return Err(Some("another program has written to it"));
        }
        match boot {
            _ if self.status != Status::InUse => Ok(()),
            Some(boot) if boot == self.boot => Ok(()),
            Some(_) if self.boot != Boot::default() => {
                Err(Some("the machine was restarted while it was in use"))
            }
            _ => Err(Some("it was in use, and the id of the machine's boot could not be read")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(n: u8) -> Boot {
        Boot([n; 16])
    }

    fn state() -> State {
        State {
            status: Status::InUse,
            boot: boot(7),
            membership: Membership { set: 1 << 60, number: 1, count: 2 },
            identity: Identity { size: 1 << 30, file: 12, records: 1 << 40, changed: -5 },
            early_deaths: 1,
        }
    }

    #[test]
    fn boot_ids_are_parsed() {
        let id = Boot::parse("e40e7d13-bd4e-4172-ba42-9d7bdca2483d\n").unwrap();
        assert_eq!((id.0[0], id.0[15]), (0xe4, 0x3d));
        for text in ["", "x", "00000000-0000-0000-0000-000000000000", "e40e7d13-bd4e-4172-ba42-9d7bdca2483d0"]
        {
            assert_eq!(Boot::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_complete_and_sound_states_are_read() {
        let bytes = state().to_bytes();
        assert_eq!(State::read(&bytes), Ok(state()));
        assert_eq!(State::read(&[&bytes[..], &[1, 2, 3]].concat()), Ok(state()));
        assert_eq!(State::read(&[]), Err(Unreadable::Missing));
        assert_eq!(State::read(&[0; LENGTH]), Err(Unreadable::Missing));
        assert_eq!(State::read(b"somebody's file"), Err(Unreadable::Foreign));
        assert_eq!(State::read(&[1; LENGTH + 1]), Err(Unreadable::Foreign));
        for length in 1..LENGTH {
            State::read(&bytes[..length]).unwrap_err();
        }
        for at in 0..LENGTH * 8 {
            let mut damaged = bytes;
            damaged[at / 8] ^= 1 << (at % 8);
            assert_ne!(State::read(&damaged).unwrap_err(), Unreadable::Foreign);
        }
        let mut other = bytes;
        other[8] = 2;
        assert_eq!(State::read(&other), Err(Unreadable::Version(2)));
    }

    #[test]
    fn objects_are_taken_over_only_from_the_same_files() {
        let (found, now) = (state().identity, Some(boot(7)));
        let synced = State { status: Status::Synced, ..state() };
        let unusable = State { status: Status::Unusable, ..state() };
        let changed = Identity { changed: 6, ..found };
        assert_eq!(state().judge(&found, now), Ok(()));
        // Pages that are written through a mapping change the time at any moment.
        assert_eq!(state().judge(&changed, now), Ok(()));
        assert_eq!(synced.judge(&found, now), Ok(()));
        assert_eq!(synced.judge(&found, Some(boot(8))), Ok(()));
        assert_eq!(synced.judge(&found, None), Ok(()));
        assert_eq!(unusable.judge(&found, now), Err(None));
        for (state, found, boot, text) in [
            (state(), found, Some(boot(8)), "restarted"),
            (state(), found, None, "could not be read"),
            (State { boot: Boot::default(), ..state() }, found, now, "could not be read"),
            (synced, changed, now, "written"),
            (state(), Identity { size: 1, ..found }, now, "size"),
            (synced, Identity { size: 1, ..found }, now, "size"),
            (state(), Identity { file: 1, ..found }, now, "replaced"),
            (synced, Identity { records: 1, ..found }, now, "replaced"),
        ] {
            let why = state.judge(&found, boot).unwrap_err().expect("a reason");
            assert!(why.contains(text), "{why}");
        }
    }
}
