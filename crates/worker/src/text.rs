//! Numbers as text without the formatting machinery, for the way of every request.

/// The decimal digits of `n`, written to the end of `buffer`.
pub fn decimal(mut n: u64, buffer: &mut [u8; 24]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &buffer[at..];
        }
    }
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
