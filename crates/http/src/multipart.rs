//! The body of a response with several ranges (RFC 9110 section 14.6).

use crate::ascii::Decimal;

/// A body of type multipart/byteranges: its framing, and the ranges of the stored body in it.
#[derive(Debug)]
pub struct Multipart {
    boundary: [u8; 16],
    /// The `Content-Type` line of each part, including the line end; empty if the type is unknown.
    content_type: Vec<u8>,
    ranges: Vec<(u64, u64)>,
    whole: u64,
}

impl Multipart {
    /// Describes `ranges`, both ends inclusive, of a body of `whole` bytes. The boundary is derived from `seed`,
    /// which the author of the body must not be able to predict.
    pub fn new(ranges: Vec<(u64, u64)>, whole: u64, content_type: Option<&[u8]>, seed: u64) -> Multipart {
        let boundary = std::array::from_fn(|i| b"0123456789abcdef"[(seed >> (60 - 4 * i)) as usize & 15]);
        let line = content_type.map(|value| [b"Content-Type: ", value, b"\r\n"].concat());
        Multipart { boundary, content_type: line.unwrap_or_default(), ranges, whole }
    }

    /// Returns the value of the response's `Content-Type`.
    pub fn media_type(&self) -> Vec<u8> {
        [b"multipart/byteranges; boundary=", &self.boundary[..]].concat()
    }

    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Returns the bytes before the data of the part with this number.
    pub fn part_head(&self, number: usize) -> Vec<u8> {
        let (low, high) = self.ranges.get(number).copied().unwrap_or_default();
        let [low, high, whole] = [low, high, self.whole].map(Decimal::new);
        let line_end: &[u8] = if number == 0 { b"" } else { b"\r\n" };
        let range = [b"Content-Range: bytes ", low.as_bytes(), b"-", high.as_bytes(), b"/", whole.as_bytes()];
        [line_end, b"--", &self.boundary, b"\r\n", &self.content_type, &range.concat(), b"\r\n\r\n"].concat()
    }

    /// Returns the bytes after the last part.
    pub fn end(&self) -> Vec<u8> {
        [b"\r\n--", &self.boundary[..], b"--\r\n"].concat()
    }

    /// Returns the length of the body, including framing.
    pub fn length(&self) -> u64 {
        let parts = self.ranges.iter().enumerate();
        let parts = parts.map(|(i, (low, high))| self.part_head(i).len() as u64 + (high - low + 1));
        parts.sum::<u64>() + self.end().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_two_parts_is_framed() {
        let body = b"0123456789";
        let multipart = Multipart::new(vec![(1, 2), (7, 9)], 10, Some(b"text/plain"), 0x0123_4567_89ab_cdef);
        let mut sent = Vec::new();
        for (number, &(low, high)) in multipart.ranges().iter().enumerate() {
            sent.extend(multipart.part_head(number));
            sent.extend_from_slice(&body[low as usize..=high as usize]);
        }
        sent.extend(multipart.end());
        let expected = "--0123456789abcdef\r\nContent-Type: text/plain\r\nContent-Range: bytes 1-2/10\r\n\r\n12\r\n\
                        --0123456789abcdef\r\nContent-Type: text/plain\r\nContent-Range: bytes 7-9/10\r\n\r\n789\r\n\
                        --0123456789abcdef--\r\n";
        assert_eq!(String::from_utf8_lossy(&sent), expected);
        assert_eq!(multipart.length(), sent.len() as u64);
        assert_eq!(multipart.media_type(), b"multipart/byteranges; boundary=0123456789abcdef");
    }
}
