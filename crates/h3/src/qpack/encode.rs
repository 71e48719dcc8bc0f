//! Writes field sections without the dynamic table: fields and names of the static table as their numbers, all else
//! literally. Values are in Huffman code if that is shorter.

use super::integer::write;
use super::static_table::{COUNT, STATIC};
use lacquer_h2::hpack::huffman;

const INDEXED_STATIC: u8 = 0xc0;
const STATIC_NAME: u8 = 0x50;
const LITERAL_NAME: u8 = 0x20;
const HUFFMAN: u8 = 0x80;

/// The length from which a string needs more than one byte for it.
const SHORT: usize = 0x7f;

/// Appends the prefix of a section, which refers to no dynamic table.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends the pseudo-header `:status` of a response. The status is taken modulo 1000.
pub fn status(out: &mut Vec<u8>, status: u16) {
    let n = status % 1000;
    let digits = [n / 100, n / 10 % 10, n % 10].map(|digit| b'0' + digit as u8);
    field(out, b":status", &digits);
}

/// Appends a field. The name is sent in lower case.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let rows = rows_of(name);
    let Some(&first) = rows.first() else { return literal(out, name, value) };
    match rows.iter().find(|&&row| value_of(row) == value) {
        Some(&row) => write(out, 6, INDEXED_STATIC, u64::from(row)),
        None => {
            write(out, 4, STATIC_NAME, u64::from(first));
            string(out, value);
        }
    }
}

/// Appends a field without the static table. The name is sent in lower case.
pub fn literal(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write(out, 3, LITERAL_NAME, name.len() as u64);
    out.extend(name.iter().map(u8::to_ascii_lowercase));
    string(out, value);
}

/// Appends a string, in Huffman code if that is shorter.
fn string(out: &mut Vec<u8>, value: &[u8]) {
    let start = out.len();
    out.push(0);
    huffman::encode(value, out);
    let encoded = out.len() - start - 1;
    if encoded < SHORT && encoded < value.len() {
        out[start] = HUFFMAN | encoded as u8;
        return;
    }
    out.truncate(start);
    if encoded < value.len() {
        write(out, 7, HUFFMAN, encoded as u64);
        huffman::encode(value, out);
    } else {
        write(out, 7, 0, value.len() as u64);
        out.extend_from_slice(value);
    }
}

fn value_of(row: u8) -> &'static [u8] {
    let entry = &STATIC[row as usize];
    &entry.line[entry.name_len + 2..]
}

const MAX_NAME: usize = 32;

/// The rows with one name.
#[derive(Clone, Copy)]
struct Group {
    first_char: u8,
    /// The place in [`Index::rows`].
    start: u8,
    end: u8,
}

/// The rows of the static table by name.
struct Index {
    /// The rows, ordered by the length of the name and then by the name.
    rows: [u8; COUNT],
    groups: [Group; COUNT],
    /// The first group of each length of a name.
    by_len: [u8; MAX_NAME + 2],
}

static INDEX: Index = {
    let empty = Group { first_char: 0, start: 0, end: 0 };
    let mut index = Index { rows: [0; COUNT], groups: [empty; COUNT], by_len: [0; MAX_NAME + 2] };
    let mut is_taken = [false; COUNT];
    let (mut n, mut groups, mut len) = (0, 0, 0);
    while len <= MAX_NAME {
        index.by_len[len] = groups as u8;
        let mut row = 0;
        while row < COUNT {
            if STATIC[row].name_len == len && !is_taken[row] {
                let start = n as u8;
                let mut same = row;
                while same < COUNT {
                    if is_same_name(row, same) {
                        index.rows[n] = same as u8;
                        is_taken[same] = true;
                        n += 1;
                    }
                    same += 1;
                }
                index.groups[groups] = Group { first_char: STATIC[row].line[0], start, end: n as u8 };
                groups += 1;
            }
            row += 1;
        }
        len += 1;
    }
    index.by_len[MAX_NAME + 1] = groups as u8;
    index
};

const fn is_same_name(a: usize, b: usize) -> bool {
    let (a, b) = (&STATIC[a], &STATIC[b]);
    let mut i = 0;
    while i < a.name_len && i < b.name_len && a.line[i] == b.line[i] {
        i += 1;
    }
    a.name_len == b.name_len && i == a.name_len
}

/// Returns the rows of the static table with this name.
fn rows_of(name: &[u8]) -> &'static [u8] {
    let (Some(&start), Some(&end)) = (INDEX.by_len.get(name.len()), INDEX.by_len.get(name.len() + 1)) else {
        return &[];
    };
    let groups = &INDEX.groups[start as usize..end as usize];
    let found = groups.iter().find(|group| {
        // The bit is set in each lower-case letter, and in the colon.
        group.first_char == name[0] | 0x20 && {
            let row = INDEX.rows[group.start as usize];
            STATIC[row as usize].line[..name.len()].eq_ignore_ascii_case(name)
        }
    });
    found.map_or(&[], |group| &INDEX.rows[group.start as usize..group.end as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_static_table_are_found() {
        for (row, entry) in STATIC.iter().enumerate() {
            let name = entry.line[..entry.name_len].to_ascii_uppercase();
            let rows = rows_of(&name);
            assert!(rows.contains(&(row as u8)));
            assert!(rows.iter().all(|&other| is_same_name(row, other as usize)));
        }
        assert_eq!(rows_of(b":status").len(), 14);
        assert_eq!(rows_of(b"X-Frame-Options"), [97, 98]);
        for name in [&b""[..], b"x", b"agf", b"accept-rangez", &[b'x'; 32], &[b'x'; 33], &[b'x'; 90]] {
            assert!(rows_of(name).is_empty());
        }
        assert!(STATIC.iter().all(|entry| entry.name_len <= MAX_NAME));
    }

    #[test]
    fn responses_use_the_static_table() {
        let mut out = Vec::new();
        begin(&mut out);
        status(&mut out, 200);
        status(&mut out, 1503);
        status(&mut out, 418);
        field(&mut out, b"Content-Length", b"0");
        field(&mut out, b"Content-Length", b"17");
        field(&mut out, b"X-Varnish", b"!");
        field(&mut out, b"age", b"1234567");
        assert_eq!(out[..4], [0, 0, 0xd9, 0xdc]);
        assert_eq!(out[4..10], *b"\x5f\x09\x03418");
        assert_eq!(out[10..28], *b"\xc4\x54\x0217\x27\x02x-varnish\x01!");
        assert_eq!(out[28..30], [0x52, 0x85]);
    }
}
