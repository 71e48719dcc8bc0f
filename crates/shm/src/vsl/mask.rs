//! The tags that are kept out of the log: the value of the parameter `vsl_mask`.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::Tag;

/// A set of masked tags. As text: `all` or `none` and then `-Tag` (masked) and `+Tag` (logged).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask([u64; 4]);

/// The reason why a mask's text is invalid. The messages are Varnish's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaskError {
    MissingSign(String),
    UnknownTag(String),
}

impl fmt::Display for MaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingSign(word) => write!(f, "Missing '+' or '-' ({word})"),
            Self::UnknownTag(word) => write!(f, "Unknown VSL tag ({word})"),
        }
    }
}

impl std::error::Error for MaskError {}

impl Mask {
    /// Every tag is logged.
    pub const ALL: Self = Self([0; 4]);
    /// No tag is logged.
    pub const NONE: Self = Self([u64::MAX; 4]);

    /// Applies a list of words separated by commas or spaces. On error, nothing changes.
    pub fn apply(&mut self, text: &str) -> Result<(), MaskError> {
        let mut mask = *self;
        for word in text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|w| !w.is_empty()) {
            match word {
                "all" => mask = Self::ALL,
                "none" => mask = Self::NONE,
                "default" => mask = Self::default(),
                _ => {
                    let (masked, name) = match word.split_at_checked(1) {
                        Some(("-", name)) => (true, name),
                        Some(("+", name)) => (false, name),
                        _ => return Err(MaskError::MissingSign(word.into())),
                    };
                    let tag = Tag::from_name(name).ok_or_else(|| MaskError::UnknownTag(word.into()))?;
                    mask.set(tag, masked);
                }
            }
        }
        *self = mask;
        Ok(())
    }

    pub fn set(&mut self, tag: Tag, masked: bool) {
        let (word, bit) = position(tag);
        if masked {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    pub fn is_masked(&self, tag: Tag) -> bool {
        let (word, bit) = position(tag);
        self.0[word] & bit != 0
    }
}

impl Default for Mask {
    /// Returns Varnish's default, without tags that are large or for developers.
    fn default() -> Self {
        let mut mask = Self::ALL;
        for tag in [
            Tag::Debug,
            Tag::ExpKill,
            Tag::H2RxBody,
            Tag::H2RxHdr,
            Tag::H2TxBody,
            Tag::H2TxHdr,
            Tag::Hash,
            Tag::ObjHeader,
            Tag::ObjProtocol,
            Tag::ObjReason,
            Tag::ObjStatus,
            Tag::ReqTarget,
            Tag::VdpAcct,
            Tag::VfpAcct,
            Tag::WorkThread,
        ] {
            mask.set(tag, true);
        }
        mask
    }
}

impl FromStr for Mask {
    type Err = MaskError;

    fn from_str(text: &str) -> Result<Self, MaskError> {
        let mut mask = Self::default();
        mask.apply(text)?;
        Ok(mask)
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if Tag::ALL.iter().all(|tag| self.is_masked(*tag)) {
            return f.write_str("none");
        }
        f.write_str("all")?;
        Tag::ALL.iter().filter(|tag| self.is_masked(**tag)).try_for_each(|tag| write!(f, ",-{}", tag.name()))
    }
}

/// The mask that all threads share: one byte for each tag, because every record tests it.
#[derive(Debug)]
pub(super) struct SharedMask([AtomicBool; 256]);

impl SharedMask {
    pub(super) fn new(mask: Mask) -> Self {
        let shared = Self([const { AtomicBool::new(false) }; 256]);
        shared.store(&mask);
        shared
    }

    pub(super) fn store(&self, mask: &Mask) {
        for tag in Tag::ALL {
            self.0[*tag as usize].store(mask.is_masked(*tag), Relaxed);
        }
    }

    pub(super) fn load(&self) -> Mask {
        let mut mask = Mask::ALL;
        for tag in Tag::ALL {
            mask.set(*tag, self.is_masked(*tag));
        }
        mask
    }

    #[inline]
    pub(super) fn is_masked(&self, tag: Tag) -> bool {
        self.0[tag as usize].load(Relaxed)
    }
}

fn position(tag: Tag) -> (usize, u64) {
    (tag as usize / 64, 1 << (tag as usize % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_formatted_as_in_varnish() {
        assert_eq!(
            Mask::default().to_string(),
            "all,-Debug,-ObjProtocol,-ObjStatus,-ObjReason,-ObjHeader,-ExpKill,-WorkThread,-Hash,-VfpAcct,\
             -H2RxHdr,-H2RxBody,-H2TxHdr,-H2TxBody,-VdpAcct,-ReqTarget"
        );
    }

    #[test]
    fn words_apply_in_order_and_errors_change_nothing() {
        let mut mask = Mask::default();
        mask.apply("+debug,-ReqURL").expect("known tags");
        assert!(!mask.is_masked(Tag::Debug) && mask.is_masked(Tag::ReqURL));
        let before = mask;
        assert_eq!(mask.apply("none,-Nope"), Err(MaskError::UnknownTag("-Nope".into())));
        assert_eq!(mask.apply("ReqURL"), Err(MaskError::MissingSign("ReqURL".into())));
        assert_eq!(mask, before);
        mask.apply("none").expect("a known word");
        assert_eq!(mask.to_string(), "none");
        mask.apply("all").expect("a known word");
        assert_eq!(mask, Mask::ALL);
    }
}
