//! The syntax of a field's name and value (RFC 9113 section 8.2.1), independent of their meaning.

use lacquer_http::ascii::{is_tchar, is_valid_line};

const NAME_CHAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = is_tchar(b as u8) && !(b as u8).is_ascii_uppercase();
        b += 1;
    }
    table
};

pub(crate) const fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Returns whether the name is a token in lower case, after the optional colon of a pseudo-header, and the value has
/// no control characters and no leading or trailing blanks.
pub fn is_well_formed(name: &[u8], value: &[u8]) -> bool {
    !name.is_empty()
        && name.strip_prefix(b":").unwrap_or(name).iter().all(|&b| NAME_CHAR[b as usize])
        && is_valid_line(value)
        && !value.first().is_some_and(|&b| is_blank(b))
        && !value.last().is_some_and(|&b| is_blank(b))
}

#[cfg(test)]
mod tests {
    use super::super::static_table::STATIC;
    use super::*;

    #[test]
    fn the_static_table_is_well_formed() {
        for row in &STATIC {
            assert!(is_well_formed(&row.line[..row.name_len], &row.line[row.name_len + 2..]));
        }
        assert!(is_well_formed(b":", b"\x80\xff"));
        for (name, value) in
            [(&b""[..], &b"x"[..]), (b"a b", b""), (b"A", b""), (b"a", b" "), (b"a", b"\x7f")]
        {
            assert!(!is_well_formed(name, value));
        }
    }
}
