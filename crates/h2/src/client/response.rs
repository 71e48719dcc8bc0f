//! The fields of a response. A valid head becomes the text of an HTTP/1.1 head, which the engine parses like any other:
//! its limits and its records apply to both.

use crate::hpack::Line;
use lacquer_http::trailers::may_trail;

/// The fields of a head, or of trailers, that were decoded so far.
#[derive(Debug, Default)]
pub struct Fields {
    /// The head, or the lines of trailers, each ended by CR LF.
    text: Vec<u8>,
    status: Option<u16>,
    length: Option<u64>,
    is_past_pseudo: bool,
    is_trailers: bool,
    /// The number of bytes by which the list may still grow.
    left: usize,
    fault: Option<&'static str>,
}

/// A head or trailers without a fault.
#[derive(Debug, PartialEq, Eq)]
pub struct Valid {
    pub text: Vec<u8>,
    /// The status; 0 for trailers.
    pub status: u16,
    pub length: Option<u64>,
}

/// The fields that belong to a connection of HTTP/1 (RFC 9113 section 8.2.2).
const CONNECTION_SPECIFIC: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

impl Fields {
    /// Begins a head. `limit` is the maximum size of the list of fields.
    pub fn of_head(limit: usize) -> Fields {
        // The status replaces the spaces.
        Fields { text: b"HTTP/1.1     \r\n".to_vec(), left: limit, ..Fields::default() }
    }

    pub fn of_trailers(limit: usize) -> Fields {
        Fields { is_trailers: true, left: limit, ..Fields::default() }
    }

    /// Adds a field. A fault is reported at the end, because the following fields may change the tables.
    pub fn add(&mut self, line: Line, bytes: &[u8]) {
        if self.fault.is_none() {
            self.fault = self.take(line, bytes).err();
        }
    }

    fn take(&mut self, line: Line, bytes: &[u8]) -> Result<(), &'static str> {
        let (name, value) = (line.name(bytes), line.value(bytes));
        self.left =
            self.left.checked_sub(line.len + 32).ok_or("the fields are too large (http_resp_size)")?;
        if !line.is_well_formed() {
            return Err("a field has forbidden characters");
        }
        if name.starts_with(b":") {
            return self.pseudo(name, value);
        }
        self.is_past_pseudo = true;
        if CONNECTION_SPECIFIC.contains(&name) {
            return Err("it has a connection-specific field");
        }
        if self.is_trailers && !may_trail(name) {
            return Ok(());
        }
        if name == b"content-length" {
            let length = number(value).ok_or("Content-Length is not a number")?;
            match self.length.replace(length) {
                None => {}
                Some(before) if before == length => return Ok(()),
                Some(_) => return Err("it has two values of Content-Length"),
            }
        }
        self.text.extend_from_slice(bytes);
        self.text.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if self.is_trailers {
            return Err("trailers have a pseudo-header");
        }
        if name != b":status" {
            return Err("it has an unknown pseudo-header");
        }
        if self.is_past_pseudo {
            return Err("a pseudo-header follows other fields");
        }
        let is_number = value.len() == 3 && value.iter().all(u8::is_ascii_digit);
        let status = number(value).filter(|_| is_number).and_then(|status| u16::try_from(status).ok());
        let status = status.filter(|&status| status >= 100).ok_or("the status is not a number")?;
        if status == 101 {
            return Err("the status 101 does not exist in HTTP/2");
        }
        if self.status.replace(status).is_some() {
            return Err("it has two statuses");
        }
        self.text[b"HTTP/1.1 ".len()..][..value.len()].copy_from_slice(value);
        Ok(())
    }

    /// Ends the block.
    pub fn finish(mut self) -> Result<Valid, &'static str> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.is_trailers {
            return Ok(Valid { text: self.text, status: 0, length: None });
        }
        let status = self.status.ok_or("it has no status")?;
        self.text.extend_from_slice(b"\r\n");
        Ok(Valid { text: self.text, status, length: self.length })
    }
}

/// Parses a number of at most 18 digits.
fn number(value: &[u8]) -> Option<u64> {
    let is_number = (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
