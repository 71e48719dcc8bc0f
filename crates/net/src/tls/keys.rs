//! The protection of records: the keys of one direction of a connection seal and open single records of TLS 1.3
//! (RFC 8446 section 5) and TLS 1.2 (RFC 5246 section 6.2.3, RFC 5288, RFC 7905).
//!
//! The handshake is that of rustls, which then hands over the keys. Its own records take an allocation and two copies
//! each, and keep buffers for a connection that is idle. These functions seal bytes of a stored body straight into the
//! buffer that is sent, and open a received record where it lies or into the reader's memory.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

use super::failure::Failure;

/// The length of a record's header.
pub const HEADER: usize = 5;
/// The maximum number of plaintext bytes in a record.
pub const MAX_PLAIN: usize = 1 << 14;
/// The maximum length of a received record with its header: TLS 1.2 allows 2,048 bytes beyond the plaintext.
pub const MAX_RECORD: usize = HEADER + MAX_PLAIN + 2048;
/// The largest difference between the length of a sent record and that of its plaintext.
pub const OVERHEAD: usize = HEADER + EXPLICIT + TAG;

const TAG: usize = 16;
/// The length of the explicit part of a nonce in TLS 1.2.
const EXPLICIT: usize = 8;
/// The version in the headers of all records.
const VERSION: [u8; 2] = [3, 3];
/// The number of records after which new keys are due. AES-GCM is safe up to 2^24.5 full records (RFC 8446 section 5.5).
const MAX_RECORDS: u64 = 1 << 24;

/// The type of a record's content.
pub mod kind {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const ALERT: u8 = 21;
    pub const HANDSHAKE: u8 = 22;
    pub const DATA: u8 = 23;
}

/// The layout of a protected record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Tls13,
    /// TLS 1.2 with AES-GCM: part of the nonce precedes the ciphertext.
    Tls12Explicit,
    /// TLS 1.2 with ChaCha20.
    Tls12,
}

impl Layout {
    /// Returns the number of bytes before the ciphertext.
    fn prefix(self) -> usize {
        HEADER + if self == Layout::Tls12Explicit { EXPLICIT } else { 0 }
    }

    /// Returns the number of bytes of the content's type in the plaintext.
    fn inner_type(self) -> usize {
        usize::from(self == Layout::Tls13)
    }
}

/// The keys of one direction.
pub struct RecordKey {
    key: LessSafeKey,
    iv: [u8; 12],
    /// The number of the next record.
    sequence: u64,
    layout: Layout,
}

/// The plaintext of a record to seal.
#[derive(Clone, Copy)]
pub enum Plain<'a> {
    Elsewhere(&'a [u8]),
    /// The plaintext is already at its place in the record, [`RecordKey::plain_at`].
    InPlace,
}

/// The content of an opened record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub kind: u8,
    pub len: usize,
}

impl RecordKey {
    /// Creates the keys for records from number `sequence` on. Fails if this does not support the cipher.
    pub fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
        version: ProtocolVersion,
    ) -> Result<RecordKey, Failure> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(Failure::Internal("a cipher whose records are not supported")),
        };
        let is_gcm = !matches!(secrets, ConnectionTrafficSecrets::Chacha20Poly1305 { .. });
        let layout = match version {
            ProtocolVersion::TLSv1_3 => Layout::Tls13,
            _ if is_gcm => Layout::Tls12Explicit,
            _ => Layout::Tls12,
        };
        let invalid = Failure::Internal("keys of an invalid length");
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| invalid.clone())?;
        let iv = iv.as_ref().try_into().map_err(|_| invalid)?;
        Ok(RecordKey { key: LessSafeKey::new(key), iv, sequence, layout })
    }

    /// Returns whether the key has protected as many records as it may.
    pub fn is_worn(&self) -> bool {
        self.sequence >= MAX_RECORDS
    }

    /// Returns the place of the plaintext in a record.
    pub fn plain_at(&self) -> usize {
        self.layout.prefix()
    }

    fn nonce(&self) -> [u8; 12] {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        nonce
    }

    /// Returns the data of TLS 1.2 that is authenticated with a record.
    fn aad12(&self, kind: u8, len: usize) -> [u8; 13] {
        let mut aad = [0; 13];
        aad[..8].copy_from_slice(&self.sequence.to_be_bytes());
        aad[8..].copy_from_slice(&header(kind, len));
        aad
    }

    /// Seals a record with `len` bytes of plaintext, at most [`MAX_PLAIN`], at the beginning of `out`, which has
    /// [`OVERHEAD`] bytes more. Returns its length.
    pub fn seal(&mut self, kind: u8, len: usize, plain: Plain<'_>, out: &mut [u8]) -> Result<usize, Failure> {
        let (prefix, inner) = (self.layout.prefix(), self.layout.inner_type());
        let total = prefix + len + inner + TAG;
        let nonce = self.nonce();
        let is_13 = self.layout == Layout::Tls13;
        let head = header(if is_13 { kind::DATA } else { kind }, total - HEADER);
        let (before, rest) = out.split_at_mut(prefix);
        let (text, after) = rest.split_at_mut(len);
        before[..HEADER].copy_from_slice(&head);
        if self.layout == Layout::Tls12Explicit {
            before[HEADER..].copy_from_slice(&nonce[4..]);
        }
        let aad12 = self.aad12(kind, len);
        let aad = Aad::from(if is_13 { &head[..] } else { &aad12[..] });
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (extra, after) = (&[kind][..inner], &mut after[..inner + TAG]);
        let sealed = match plain {
            Plain::Elsewhere(bytes) => {
                self.key.seal_out_of_place_scatter(nonce, aad, &bytes[..len], text, extra, after)
            }
            Plain::InPlace => self.key.seal_in_place_scatter(nonce, aad, text, extra, after),
        };
        sealed.map_err(|_| Failure::Internal("a record that cannot be sealed"))?;
        self.sequence += 1;
        Ok(total)
    }

    /// Returns the number of bytes that opening a record of this length writes, at most.
    pub fn opened_len(&self, record: usize) -> usize {
        record.saturating_sub(self.layout.prefix() + TAG)
    }

    /// Opens a whole record, which has its header. The content is written to the beginning of `out`, which has
    /// [`opened_len`](Self::opened_len) bytes, or stays at [`plain_at`](Self::plain_at) in the record.
    pub fn open(&mut self, record: &mut [u8], out: Option<&mut [u8]>) -> Result<Opened, Failure> {
        let prefix = self.layout.prefix();
        let Some(len) = record.len().checked_sub(prefix + TAG) else { return Err(Failure::BadRecordMac) };
        let is_13 = self.layout == Layout::Tls13;
        let mut kind = record[0];
        if is_13 && kind != kind::DATA {
            return Err(Failure::Unexpected("a record that is not encrypted"));
        }
        if len > MAX_PLAIN + self.layout.inner_type() {
            return Err(Failure::RecordOverflow);
        }
        let mut nonce = self.nonce();
        if self.layout == Layout::Tls12Explicit {
            nonce[4..].copy_from_slice(&record[HEADER..prefix]);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad12 = self.aad12(kind, len);
        let (before, rest) = record.split_at_mut(prefix);
        let (text, tag) = rest.split_at_mut(len);
        let aad = Aad::from(if is_13 { &before[..] } else { &aad12[..] });
        let text = match out {
            Some(out) => {
                let out = &mut out[..len];
                self.key.open_separate_gather(nonce, aad, text, tag, out).map(|()| &*out)
            }
            None => self.key.open_in_place_separate_tag(nonce, aad, tag, text).map(|text| &*text),
        };
        let text = text.map_err(|_| Failure::BadRecordMac)?;
        self.sequence += 1;
        let mut len = len;
        if is_13 {
            // The type is the last byte that is not padding.
            let Some(at) = text.iter().rposition(|&byte| byte != 0) else {
                return Err(Failure::Unexpected("a record without a type"));
            };
            (kind, len) = (text[at], at);
        }
        Ok(Opened { kind, len })
    }
}

fn header(kind: u8, len: usize) -> [u8; HEADER] {
    let [high, low] = (len as u16).to_be_bytes();
    [kind, VERSION[0], VERSION[1], high, low]
}

/// Returns the length of the record that these bytes begin, with its header; `None` if the header is incomplete.
pub fn record_len(bytes: &[u8]) -> Result<Option<usize>, Failure> {
    let Some(&first) = bytes.first() else { return Ok(None) };
    if !(kind::CHANGE_CIPHER_SPEC..=kind::DATA).contains(&first) {
        return Err(Failure::not_tls(bytes));
    }
    if bytes.get(1).is_some_and(|&major| major != VERSION[0]) {
        return Err(Failure::not_tls(bytes));
    }
    let &[_, _, _, high, low, ..] = bytes else { return Ok(None) };
    let len = HEADER + usize::from(u16::from_be_bytes([high, low]));
    if len > MAX_RECORD { Err(Failure::RecordOverflow) } else { Ok(Some(len)) }
}
