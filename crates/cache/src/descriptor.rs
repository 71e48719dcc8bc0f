//! The data that a store keeps with an object, so that the object can be indexed again: its key, times and flags.
//!
//! ```text
//! u8 version | 24 bytes key | u64 transaction | f64 origin | f32 ttl, grace, keep | u32 flags     (little endian)
//! ```
//!
//! The version also covers the fixed part before the Vary specification and the packed head ([`ObjectSpec`]). The
//! packed head has a version of its own.

use std::fmt;

use crate::object::{Object, ObjectSpec, Timers, flag};
use crate::slab::Key;

/// The version that is written. No other version is read.
const VERSION: u8 = 1;
const LENGTH: usize = 1 + size_of::<Key>() + 8 + 8 + 3 * 4 + 4;
/// The flags that a recovered object may have.
const FLAGS: u32 = flag::IMSCAND | flag::GZIPED | flag::CHGCE | flag::ESIPROC | flag::TAGGED;

/// The data that a store keeps with an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Descriptor {
    pub(crate) key: Key,
    pub(crate) vxid: u64,
    pub(crate) t_origin: f64,
    pub(crate) timers: Timers,
    pub(crate) flags: u32,
}

/// The reason why a descriptor is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorError {
    CutShort,
    UnknownVersion(u8),
    /// A time is not finite, a flag is set that no recovered object has, or there are extra bytes.
    Damaged,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CutShort => f.write_str("the descriptor is cut short"),
            Self::UnknownVersion(found) => {
                write!(f, "the descriptor has version {found}, and only version {VERSION} can be read")
            }
            Self::Damaged => f.write_str("the descriptor is damaged"),
        }
    }
}

impl std::error::Error for DescriptorError {}

impl Descriptor {
    pub(crate) fn of(key: Key, object: &Object) -> Self {
        Self {
            key,
            vxid: object.vxid(),
            t_origin: object.t_origin(),
            timers: object.timers(),
            flags: object.flags() & FLAGS,
        }
    }

    /// Returns the specification of the object, without head and Vary, which are in storage.
    pub(crate) fn spec(&self) -> ObjectSpec<'static> {
        ObjectSpec {
            vxid: self.vxid,
            t_origin: self.t_origin,
            timers: self.timers,
            flags: self.flags,
            last_modified: 0.0,
            vary: &[],
            head: &[],
            extra: &[],
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Timers { ttl, grace, keep } = self.timers;
        let mut out = Vec::with_capacity(LENGTH);
        out.push(VERSION);
        out.extend_from_slice(&self.key);
        out.extend_from_slice(&self.vxid.to_le_bytes());
        out.extend_from_slice(&self.t_origin.to_le_bytes());
        for time in [ttl, grace, keep] {
            out.extend_from_slice(&time.to_le_bytes());
        }
        out.extend_from_slice(&self.flags.to_le_bytes());
        out
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let (&version, rest) = bytes.split_first().ok_or(DescriptorError::CutShort)?;
        if version != VERSION {
            return Err(DescriptorError::UnknownVersion(version));
        }
        let mut rest = rest;
        let key = take(&mut rest)?;
        let vxid = u64::from_le_bytes(take(&mut rest)?);
        let t_origin = f64::from_le_bytes(take(&mut rest)?);
        let [ttl, grace, keep] =
            [take(&mut rest)?, take(&mut rest)?, take(&mut rest)?].map(f32::from_le_bytes);
        let flags = u32::from_le_bytes(take(&mut rest)?);
        let has_times = t_origin.is_finite() && [ttl, grace, keep].into_iter().all(f32::is_finite);
        if !has_times || flags & !FLAGS != 0 || !rest.is_empty() {
            return Err(DescriptorError::Damaged);
        }
        Ok(Self { key, vxid, t_origin, timers: Timers { ttl, grace, keep }, flags })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DescriptorError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(DescriptorError::CutShort)?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Descriptor {
        Descriptor {
            key: std::array::from_fn(|i| i as u8),
            vxid: 1 << 40,
            t_origin: 1_700_000_000.5,
            timers: Timers { ttl: 120.0, grace: 10.0, keep: 0.5 },
            flags: flag::GZIPED,
        }
    }

    #[test]
    fn descriptors_round_trip_and_damaged_ones_are_rejected() {
        type Spoil = fn(&mut Vec<u8>);
        let bytes = sample().bytes();
        assert_eq!(bytes.len(), LENGTH);
        assert_eq!(Descriptor::read(&bytes), Ok(sample()));
        let cases: &[(&str, Spoil, DescriptorError)] = &[
            ("nothing at all", |b| b.clear(), DescriptorError::CutShort),
            ("the version alone", |b| b.truncate(1), DescriptorError::CutShort),
            ("no last byte", |b| b.truncate(LENGTH - 1), DescriptorError::CutShort),
            ("a byte too many", |b| b.push(0), DescriptorError::Damaged),
            ("no version yet", |b| b[0] = 0, DescriptorError::UnknownVersion(0)),
            ("the next version", |b| b[0] = VERSION + 1, DescriptorError::UnknownVersion(VERSION + 1)),
            ("an origin without end", |b| b[33..41].copy_from_slice(&f64::INFINITY.to_le_bytes()), {
                DescriptorError::Damaged
            }),
            ("a ttl that is no number", |b| b[41..45].copy_from_slice(&f32::NAN.to_le_bytes()), {
                DescriptorError::Damaged
            }),
            ("a private object", |b| b[53] |= flag::PRIVATE as u8, DescriptorError::Damaged),
        ];
        for (what, spoil, error) in cases {
            let mut spoiled = bytes.clone();
            spoil(&mut spoiled);
            assert_eq!(Descriptor::read(&spoiled), Err(*error), "{what}");
        }
    }

    #[test]
    fn changed_bytes_never_panic() {
        let bytes = sample().bytes();
        for at in 0..bytes.len() {
            for change in (1..=255).step_by(if cfg!(miri) { 127 } else { 1 }) {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                assert_ne!(Descriptor::read(&changed), Ok(sample()), "byte {at} by {change:#x}");
            }
        }
    }
}
