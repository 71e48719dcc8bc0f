//! Writes header blocks. As in Varnish, responses use fields that no side records ("never indexed"). Values are sent
//! literally, and names in the static table as their number.

use super::static_table::{COUNT, STATIC};
use super::{huffman, integer};

/// Common statuses and their rows in the static table.
const STATUSES: [(u16, u8); 7] = [(200, 8), (204, 9), (206, 10), (304, 11), (400, 12), (404, 13), (500, 14)];

/// The first row that is not a pseudo-header.
const FIRST_PLAIN: usize = 15;

const NEVER_INDEXED: u8 = 0x10;

/// Writes the pseudo-header `:status` of a response. The status is taken modulo 1000.
pub fn status(out: &mut Vec<u8>, status: u16) {
    let n = status % 1000;
    if let Some(&(_, row)) = STATUSES.iter().find(|(usual, _)| *usual == n) {
        out.push(0x80 | row);
        return;
    }
    out.extend_from_slice(&[0x18, 3]);
    out.extend_from_slice(&[n / 100, n / 10 % 10, n % 10].map(|digit| b'0' + digit as u8));
}

/// Writes a field. The name is sent in lower case. Returns the row of the static table that has the name, if any.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Option<usize> {
    let row = name_row(name);
    match row {
        Some(row) => integer::write(out, 4, NEVER_INDEXED, row),
        None => {
            out.push(NEVER_INDEXED);
            integer::write(out, 7, 0, name.len());
            out.extend(name.iter().map(u8::to_ascii_lowercase));
        }
    }
    integer::write(out, 7, 0, value.len());
    out.extend_from_slice(value);
    row
}

/// Writes a field whose name is that of a row of the static table.
pub fn named_by_row(out: &mut Vec<u8>, row: usize, value: &[u8]) {
    integer::write(out, 4, NEVER_INDEXED, row);
    integer::write(out, 7, 0, value.len());
    out.extend_from_slice(value);
}

/// Writes a field that the peer adds to its table, with both strings in Huffman code.
pub fn remembered(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match name_row(name) {
        Some(row) => integer::write(out, 6, 0x40, row),
        None => {
            out.push(0x40);
            huffman_string(out, name);
        }
    }
    huffman_string(out, value);
}

/// Returns name and value of a row of the static table. Rows are numbered from 1.
pub(crate) fn static_row(row: usize) -> (&'static [u8], &'static [u8]) {
    let entry = &STATIC[row - 1];
    (&entry.line[..entry.name_len], &entry.line[entry.name_len + 2..])
}

/// Writes the size 0 of the table, which must precede the first field after the peer has made the table smaller (RFC 7541
/// section 4.2). No field here needs a table.
pub fn empty_table(out: &mut Vec<u8>) {
    integer::write(out, 5, 0x20, 0);
}

/// Writes a field that is in a table, as its number.
pub fn indexed(out: &mut Vec<u8>, index: usize) {
    integer::write(out, 7, 0x80, index);
}

fn huffman_string(out: &mut Vec<u8>, text: &[u8]) {
    integer::write(out, 7, 0x80, huffman::encoded_len(text));
    huffman::encode(text, out);
}

const MAX_NAME: usize = 27;

/// The rows with ordinary names ordered by the length of the name, and for each length the index of the first.
const BY_LEN: ([u8; COUNT], [u8; MAX_NAME + 2]) = {
    let (mut rows, mut starts) = ([0; COUNT], [0; MAX_NAME + 2]);
    let (mut n, mut len) = (0, 0);
    while len <= MAX_NAME {
        starts[len] = n as u8;
        let mut row = FIRST_PLAIN;
        while row <= COUNT {
            if STATIC[row - 1].name_len == len {
                rows[n] = row as u8;
                n += 1;
            }
            row += 1;
        }
        len += 1;
    }
    starts[MAX_NAME + 1] = n as u8;
    (rows, starts)
};

/// Returns the row of the static table with this name.
fn name_row(name: &[u8]) -> Option<usize> {
    let (&start, &end) = (BY_LEN.1.get(name.len())?, BY_LEN.1.get(name.len() + 1)?);
    let rows = &BY_LEN.0[start as usize..end as usize];
    let row = rows.iter().find(|&&row| {
        let known = &STATIC[row as usize - 1].line[..name.len()];
        known[0] == name[0] | 0x20 && known.eq_ignore_ascii_case(name)
    });
    row.map(|&row| row as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_static_table_are_found() {
        for row in FIRST_PLAIN..=COUNT {
            let entry = &STATIC[row - 1];
            let name = entry.line[..entry.name_len].to_ascii_uppercase();
            assert_eq!(name_row(&name), Some(row));
        }
        for name in [&b""[..], b"x", b"foo", b"accept-rangez", &[b'x'; 27], &[b'x'; 28], &[b'x'; 29]] {
            assert_eq!(name_row(name), None);
        }
    }

    #[test]
    fn responses_are_encoded_without_indexing() {
        let mut out = Vec::new();
        status(&mut out, 1200);
        status(&mut out, 503);
        field(&mut out, b"Content-Length", b"0");
        field(&mut out, b"X-Varnish", b"1001");
        assert_eq!(out, b"\x88\x18\x03503\x1f\x0d\x010\x10\x09x-varnish\x041001");
    }
}
