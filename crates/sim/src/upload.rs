//! Request bodies as HTTP/1 clients send them. Most are correct.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;

use crate::ledger::Ledger;
use crate::wire::{self, Chance, below, one_of, percent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upload {
    None,
    Length,
    Chunked,
    /// Trailer fields follow the last chunk.
    Trailers,
    /// The last chunk is replaced by bytes that are not a chunk.
    Malformed,
    /// The client shuts down its direction too early.
    Cut,
}

/// Bytes that no reader may accept as a chunk.
const NO_CHUNKS: [&str; 6] = [
    "zz\r\n",
    "-5\r\nabcde\r\n0\r\n\r\n",
    "3\r\nabcd\r\n0\r\n\r\n",
    "11111111111111111\r\n",
    "\r\n\r\n",
    "0\r\n\0\r\n",
];

impl Upload {
    /// Chooses how to send an upload, and records whether that breaks it.
    pub fn choose(number: usize, chance: &Chance, ledger: &Rc<RefCell<Ledger>>) -> Upload {
        let upload = match below(chance, 100) {
            0..40 => Upload::Length,
            40..80 => Upload::Chunked,
            80..87 => Upload::Trailers,
            87..94 => Upload::Malformed,
            _ => Upload::Cut,
        };
        if matches!(upload, Upload::Malformed | Upload::Cut) {
            ledger.borrow_mut().break_upload(number, &format!("{upload:?}"));
        }
        upload
    }

    /// Returns whether the upload is regular.
    pub fn is_plain(self) -> bool {
        matches!(self, Upload::None | Upload::Length | Upload::Chunked)
    }

    /// Adds the header fields that announce a body.
    pub fn announce(self, length: usize, head: &mut String) {
        let _ = match self {
            Upload::None => Ok(()),
            Upload::Length => write!(head, "Content-Length: {length}\r\n"),
            Upload::Cut => write!(head, "Content-Length: {}\r\n", length + 1),
            _ => write!(head, "Transfer-Encoding: chunked\r\n"),
        };
    }

    /// Returns the body in the form that is sent.
    pub fn bytes(self, body: &[u8], chance: &Chance) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Upload::None => {}
            Upload::Length | Upload::Cut => bytes.extend(body),
            _ => wire::chunks(body, &mut bytes, chance),
        }
        match self {
            Upload::Trailers => {
                bytes.truncate(bytes.len() - 2);
                bytes.extend(b"X-Trailer: of no use\r\n\r\n");
            }
            Upload::Malformed => {
                bytes.truncate(bytes.len() - 5);
                bytes.extend(one_of(chance, &NO_CHUNKS).bytes());
            }
            Upload::Cut if percent(chance, 50) => bytes.truncate(below(chance, body.len() as u64) as usize),
            _ => {}
        }
        bytes
    }
}
