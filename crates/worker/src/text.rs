//! Numbers as text without the formatting machinery, for the way of every request.

use lacquer_shm::vsl::text;

/// The decimal digits of `n`.
pub fn decimal(n: u64, buffer: &mut [u8; text::MAX]) -> &[u8] {
    let len = text::decimal(n, buffer);
    &buffer[..len]
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits() {
        let mut b = [0; 24];
        assert_eq!(super::decimal(0, &mut b), b"0");
        assert_eq!(super::decimal(u64::MAX, &mut b), b"18446744073709551615");
    }
}
