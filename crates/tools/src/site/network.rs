//! Networks, as `ADDRESS/BITS`.

use std::net::IpAddr;

use super::wrong::Wrong;

/// An address and the number of its bits that count.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    pub fn parse(text: &str) -> Result<Network, Wrong> {
        let wrong = || {
            let hint = "write an address or a network, such as 127.0.0.1, ::1 or 10.0.0.0/8";
            Wrong::new("it is not a network", hint)
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let is_number = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = match bits {
            None => most,
            Some(bits) => {
                Some(bits).filter(is_number).and_then(|bits| bits.parse().ok()).ok_or_else(wrong)?
            }
        };
        let fixed = match address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        if bits > most {
            return Err(wrong());
        }
        // VCL refuses an address with more bits than its mask.
        let host = u32::from(most - bits);
        if host > 0 && fixed.checked_shl(128 - host).unwrap_or(0) != 0 {
            return Err(Wrong::new(
                "the address has more bits than the network",
                "write 10.0.0.0/8, not 10.1.2.3/8",
            ));
        }
        Ok(Network { address, bits })
    }

    /// Returns an entry of an ACL.
    pub fn vcl(&self) -> String {
        format!("\"{}\"/{};", self.address, self.bits)
    }
}
