//! A name service that asks nobody.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lacquer_vcl::Resolver;

/// Gives every name an address for documentation (RFC 5737), so that a text can be checked on a machine that does not
/// know the names of its origins.
pub struct Offline;

const ANY_NAME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The port of a service whose name is not known here.
const ANY_PORT: u16 = 1;

impl Resolver for Offline {
    fn resolve(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let port = match port.parse() {
            Ok(port) => port,
            Err(_) if port.starts_with(|c: char| c.is_ascii_alphabetic()) && port.chars().all(is_name) => {
                ANY_PORT
            }
            Err(_) => return Err("Servname not supported for ai_socktype".to_owned()),
        };
        let host = host.unwrap_or("0.0.0.0");
        let address = match host.parse() {
            Ok(address) => address,
            // Four numbers are an address, never a name.
            Err(_)
                if host.is_empty()
                    || host.ends_with(|c: char| c.is_ascii_digit())
                        && !host.contains(char::is_alphabetic) =>
            {
                return Err("Name or service not known".to_owned());
            }
            Err(_) if host.chars().all(|c| is_name(c) || c == '.') => ANY_NAME,
            Err(_) => return Err("Name or service not known".to_owned()),
        };
        Ok(vec![SocketAddr::new(address, port)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_address_and_wrong_ones_do_not() {
        let resolve = |host, port| Offline.resolve(Some(host), port).map(|all| all[0].to_string());
        assert_eq!(resolve("app.example", "80").as_deref(), Ok("192.0.2.1:80"));
        assert_eq!(resolve("::1", "http").as_deref(), Ok("[::1]:1"));
        for (host, port) in [("300.1.1.1", "80"), ("", "80"), ("a b", "80"), ("a", "99999"), ("a", "")] {
            assert!(resolve(host, port).is_err(), "{host} {port}");
        }
    }
}
