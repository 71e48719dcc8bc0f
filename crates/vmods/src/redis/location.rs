//! The places of servers.

/// The place of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// A host name or address with a port.
    Host(String, u16),
    /// The path of a UNIX socket.
    Path(String),
}

impl Location {
    /// Parses `HOST:PORT`, `[ADDRESS]:PORT`, or an absolute path.
    pub(super) fn parse(text: &str) -> Result<Location, String> {
        if text.starts_with('/') {
            return Ok(Location::Path(text.to_owned()));
        }
        let fault = || format!("\"{text}\" is neither HOST:PORT nor the path of a UNIX socket");
        let (host, port) = text.rsplit_once(':').ok_or_else(fault)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        // Without brackets, the port of an IPv6 address would be a part of it.
        let is_host = !host.is_empty()
            && !host.contains(char::is_whitespace)
            && (bare.is_some() || !host.contains(':'));
        match port.parse() {
            Ok(port) if port > 0 && is_host => Ok(Location::Host(host.to_owned(), port)),
            _ => Err(fault()),
        }
    }

    /// Returns the host, if there is one.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Location::Host(host, _) => Some(host),
            Location::Path(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_hosts_with_ports_or_paths() {
        let host = |host: &str, port| Ok(Location::Host(host.to_owned(), port));
        assert_eq!(Location::parse("192.0.2.1:6379"), host("192.0.2.1", 6379));
        assert_eq!(Location::parse("cache.example:1"), host("cache.example", 1));
        assert_eq!(Location::parse("[2001:db8::1]:6379"), host("2001:db8::1", 6379));
        assert_eq!(Location::parse("/run/redis.sock"), Ok(Location::Path("/run/redis.sock".to_owned())));
        for wrong in
            ["", "host", "host:", "host:0", "host:65536", "host:x", ":1", "2001:db8::1:6379", "a b:1", "[]:1"]
        {
            assert!(Location::parse(wrong).is_err(), "{wrong}");
        }
    }
}
